-- pgevict.found_epoch() returns uuid
--
-- Founds an epoch of this very log: a random id, with the real identity beside it, in pgevict.epoch and, for readers on
-- a standby, in pgevict.meta. Returns the id.
--
-- Whoever calls it holds the row of pgevict.meta, in READ COMMITTED. Writes pgevict.epoch and pgevict.meta.
create or replace function pgevict.found_epoch() returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  founded constant uuid := gen_random_uuid();
  here_system constant bigint := (select s.system_identifier from pg_control_system() s);
  here_database constant oid := (select d.oid from pg_database d where d.datname = current_database());
  here_event constant oid := 'pgevict.event'::regclass;
begin
  delete from pgevict.epoch;
  insert into pgevict.epoch (epoch, system_identifier, database, event_table)
  values (founded, here_system, here_database, here_event);
  update pgevict.meta
  set epoch = founded, system_identifier = here_system, database = here_database, event_table = here_event
  where one;
  return founded;
end
$$;
