-- pgevict.check_texts(field text, texts text[]) returns void
--
-- Refuses a list of keys, tags or prefixes that a reader could not hold: a NULL element, more than one dimension, an
-- element over 1 MiB. The error (22023) names the field, the place and the limit.
--
-- Internal: emit() calls it only when a cheap test says that something is wrong. Writes nothing.
create or replace function pgevict.check_texts(field text, texts text[]) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  one text;
  n integer := 0;
begin
  if array_ndims(texts) > 1 then
    raise exception 'emit: % has more than one dimension', field
      using errcode = 'invalid_parameter_value', hint = 'Pass a plain list.';
  end if;
  foreach one in array texts loop
    n := n + 1;
    if one is null then
      raise exception 'emit: element % of % is null', n, field
        using errcode = 'invalid_parameter_value',
              hint = 'Build the text with pgevict.key(...), which renders a missing value as %N.';
    end if;
    if octet_length(one) > 1048576 then
      raise exception 'emit: element % of % has % bytes, over the limit of 1048576 bytes (1 MiB)',
          n, field, octet_length(one)
        using errcode = 'invalid_parameter_value', hint = 'Use a shorter text, such as a hash of it.';
    end if;
    if one = '' and field = 'prefixes' then
      raise exception 'emit: element % of prefixes is empty, which would empty everything', n
        using errcode = 'invalid_parameter_value', hint = 'Use pgevict.flush() if that is what you want.';
    end if;
  end loop;
end
$$;
