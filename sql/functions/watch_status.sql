-- pgevict.watch_status() returns setof (schema_name, table_name, definition, state)
--
-- Every watch: those that triggers carry, and those that are recorded but have no table or no trigger any more.
-- A restored table has another number than the record, but its triggers came along: it is listed once, as what they
-- say.
-- Writes nothing.
--   ok, drifted  see watch_state()
--   missing      recorded, but the table or all of its triggers are gone: watch it again, or unwatch it
create or replace function pgevict.watch_status(
  out target oid, out schema_name text, out table_name text, out definition jsonb, out state text
) returns setof record
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  select t.oid, coalesce(n.nspname, w.schema_name), coalesce(c.relname, w.table_name),
    coalesce(s.definition, w.definition), coalesce(s.state, 'missing')
  from (
      select t.tgrelid from pg_trigger t
      where t.tgfoid in (select f.function from pgevict.watch_functions() f) and not t.tgisinternal
      union
      select w.target from pgevict.watch w
      where not exists (
        select from pg_trigger t
          join pg_class c on c.oid = t.tgrelid
          join pg_namespace n on n.oid = c.relnamespace
        where t.tgfoid in (select f.function from pgevict.watch_functions() f)
          and n.nspname = w.schema_name and c.relname = w.table_name)
    ) t (oid)
    left join pgevict.watch w on w.target = t.oid
    left join pg_class c on c.oid = t.oid
    left join pg_namespace n on n.oid = c.relnamespace
    left join lateral pgevict.watch_state(t.oid) s on true
  order by 2, 3
$$;
