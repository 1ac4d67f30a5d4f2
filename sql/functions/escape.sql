-- pgevict.escape(value text) returns text
--
-- The text as it stands inside a key, tag or prefix: every byte of its UTF-8 form except A-Z a-z 0-9 - . _ ~ becomes
-- %XX (RFC 3986, as encodeURIComponent or quote(safe='') write it), so that no value can imitate a separator.
-- NULL gives NULL. Writes nothing.
--
-- Each distinct character is replaced once over the whole text: % first, since the others bring new ones. What is put
-- in holds only % and hex digits, which no later round looks for. A text of very many distinct characters (Chinese,
-- say) is taken apart instead. Collation "C": bytes decide, whatever collation the value came with. The E'' form means the same under any standard_conforming_strings.
create or replace function pgevict.escape(value text) returns text
language plpgsql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  reserved text[];
  one text;
begin
  if value collate "C" ~ '^[A-Za-z0-9._~-]*$' then
    return value;
  end if;
  select array_agg(distinct c collate "C") into reserved
  from string_to_table(regexp_replace(value collate "C", '[A-Za-z0-9._~%-]+', '', 'g'), null) c;
  if cardinality(reserved) > 100 then
    return (
      select string_agg(
        case
          when c collate "C" ~ '^[A-Za-z0-9._~-]$' then c
          else regexp_replace(upper(encode(convert_to(c, 'UTF8'), 'hex')) collate "C", '(..)', E'%\\1', 'g')
        end, '' order by n)
      from string_to_table(value, null) with ordinality t (c, n));
  end if;
  value := replace(value collate "C", '%', '%25');
  if reserved is not null then
    foreach one in array reserved loop
      value := replace(value collate "C", one,
        regexp_replace(upper(encode(convert_to(one, 'UTF8'), 'hex')) collate "C", '(..)', E'%\\1', 'g'));
    end loop;
  end if;
  return value;
end
$$;
