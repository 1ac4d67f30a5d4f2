-- pgevict.key(value) returns text
--
-- The canonical text of one value, escaped, as a watch's template puts it into a key; a missing value is %N. The same
-- whatever the session's TimeZone, DateStyle, IntervalStyle, extra_float_digits, bytea_output and lc_monetary say.
-- Writes nothing. Use: 'product:' || pgevict.key(id).
create or replace function pgevict.key(value text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(pgevict.escape(value), '%N')
$$;

-- "char" fits neither of the two better than the other.
create or replace function pgevict.key(value "char") returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when value is not null then pgevict.escape(concat(value)) else '%N' end
$$;

create or replace function pgevict.key(value anyelement) returns text
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'iso_8601'
set extra_float_digits = 1
set bytea_output = 'hex'
set lc_monetary = 'C'
as $$
declare
  result text;
begin
  execute 'select pgevict.escape(' || pgevict.text_of('$1', pg_typeof(value)) || ')' into result using value;
  return coalesce(result, '%N');
end
$$;

-- pgevict.key(template text, variadic values) returns text
--
-- The template with each {} replaced by the canonical text of the next value: pgevict.key('line:{}:{}', 7, 42). The
-- values share one type; mix types by joining the parts with ||. A number of values other than that of the {} is an
-- error (22023).
create or replace function pgevict.key(template text, variadic "values" anycompatiblearray) returns text
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  parts constant text[] := string_to_array(template, '{}');
  given constant integer := coalesce(array_length("values", 1), 0);
  result text := parts[1];
begin
  if cardinality(parts) - 1 <> given then
    raise exception 'key: template % has % placeholders {} and % values', quote_literal(template),
        cardinality(parts) - 1, given
      using errcode = 'invalid_parameter_value';
  end if;
  for n in 1 .. given loop
    result := result || pgevict.key("values"[array_lower("values", 1) + n - 1]) || parts[n + 1];
  end loop;
  return result;
end
$$;
