-- pgevict.template_head(template, schema_name, table_name) returns text
--
-- The literal text before the first placeholder: what every text of this template begins with. Writes nothing.
create or replace function pgevict.template_head(template text, schema_name text, table_name text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(string_agg(p.literal, '' order by p.n), '')
  from (
    select t.n, t.literal, count(t.field) over (order by t.n) as fields
    from pgevict.template(template, schema_name, table_name) t
  ) p
  where p.fields = 0
$$;
