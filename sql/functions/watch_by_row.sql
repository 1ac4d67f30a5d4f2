-- pgevict.watch_by_row(definition jsonb, target oid) returns boolean
--
-- True when statement triggers do not see every change of a watched table, so that its watch has a row trigger as
-- well: a partitioned table, whose partitions are written directly too, and a watch with fire_on_replica, since what
-- logical replication applies fires row triggers only. Writes nothing.
create or replace function pgevict.watch_by_row(definition jsonb, target oid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce((definition ->> 'fire_on_replica')::boolean, false)
    or exists (select from pg_class c where c.oid = target and c.relkind = 'p')
$$;
