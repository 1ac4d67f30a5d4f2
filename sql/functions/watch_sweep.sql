-- pgevict.watch_sweep() returns integer
--
-- Drops the trigger functions of watches that no trigger uses any more, and says how many: those of a watch that was
-- changed or taken off, and those of a dropped table, which PostgreSQL leaves behind.
--
-- Internal: runs when a watch is installed, changed or taken off, and at each migration. It runs with its owner's
-- rights.
-- A function about to be used is not seen here: it is made in the transaction that uses it, under a name of its own.
-- Reads nothing of the user's and locks none of his tables.
create or replace function pgevict.watch_sweep() returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  name text;
  dropped integer := 0;
begin
  for name in
    select p.proname from pg_proc p
    where p.pronamespace = 'pgevict'::regnamespace and p.proname ~ '^fired_[0-9]+_[0-9a-f]+(_row)?$'
      and not exists (select from pg_trigger t where t.tgfoid = p.oid)
  loop
    begin
      execute format('drop function if exists pgevict.%I()', name);
      dropped := dropped + 1;
    exception
      when dependent_objects_still_exist then
        null;
    end;
  end loop;
  return dropped;
end
$$;
