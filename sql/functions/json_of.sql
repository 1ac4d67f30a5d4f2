-- pgevict.json_of(expression text, type oid) returns text
--
-- SQL for the JSON text of an expression of that type, as it stands in `changes`: smallint and integer are numbers,
-- boolean is true or false, all else is a string with its canonical text (text_of()); null for NULL. Writes nothing.
create or replace function pgevict.json_of(expression text, type oid) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format(
    case when pgevict.base_of(type) = any (array['int2', 'int4', 'bool']::regtype[]) then 'coalesce(%s, ''null'')'
      else 'coalesce(to_json(%s)::text, ''null'')' end,
    pgevict.text_of(expression, type))
$$;
