-- pgevict.watch_status() returns setof (target, schema_name, table_name, definition, state, reason, cure, since, detached)
--
-- Every watch: those that triggers carry, and those that are recorded but have no table or no trigger any more.
-- A restored table has another number than the record, but its triggers came along: it is listed once, as what they
-- say.
-- Writes nothing.
--   ok, drifted   see watch_state()
--   missing       recorded, but the table or all of its triggers are gone: watch it again, or unwatch it
--   reason, cure  why it is not ok, and what to do
--   since         when the warden first saw it so; NULL: it has not looked since
--   detached      partitions that were detached and still exist: what is written there is told by nobody
do $do$
begin
  -- Its columns were others in schema version 2. Only then: a view may depend on it, and rights may have been granted.
  if exists (
    select from pg_catalog.pg_proc p
    where p.oid = pg_catalog.to_regprocedure('pgevict.watch_status()') and p.proargnames[9] is distinct from 'detached')
  then
    drop function pgevict.watch_status();
  end if;
end
$do$;
create or replace function pgevict.watch_status(
  out target oid, out schema_name text, out table_name text, out definition jsonb, out state text,
  out reason text, out cure text, out since timestamptz, out detached text[]
) returns setof record
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  select f.target, coalesce(n.nspname, w.schema_name), coalesce(c.relname, w.table_name),
    coalesce(s.definition, w.definition), coalesce(s.state, 'missing'), r.reason, r.cure,
    case when coalesce(s.state, 'missing') = replace(k.state, 'gone', 'missing') then k.since end,
    array(
      select p.oid::regclass::text from pg_class p
      where p.oid = any (k.detached || k.parts) and p.oid <> all (f.parts)
      order by 1)
  from pgevict.watch_fingerprints() f
    left join pgevict.watch w on w.target = f.target
    left join pgevict.checked k on k.target = f.target
    left join pg_class c on c.oid = f.target
    left join pg_namespace n on n.oid = c.relnamespace
    left join lateral pgevict.watch_state(f.target) s on true
    left join lateral pgevict.watch_reason(coalesce(s.definition, w.definition), f.target) r
      on s.state is distinct from 'ok'
  order by 2, 3
$$;
