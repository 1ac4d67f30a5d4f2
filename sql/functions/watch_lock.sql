-- pgevict.watch_lock(target oid, mode text) returns void
--
-- Locks a table and all its partitions, the table first, so that none is added from there on. All of it within 100 ms,
-- not 100 ms each (55P03): who writes to one of them waits for as long as the others are waited for.
create or replace function pgevict.watch_lock(target oid, mode text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  started constant timestamptz := clock_timestamp();
  part regclass;
begin
  execute format('lock table only %s in %s mode', target::regclass, mode);
  for part in
    select p.relid from pg_partition_tree(target) p where p.relid <> target order by p.level, p.relid::oid
  loop
    perform set_config('lock_timeout',
      greatest(1, 100 - extract(epoch from clock_timestamp() - started) * 1000)::integer::text, true);
    execute format('lock table only %s in %s mode', part, mode);
  end loop;
end
$$;
