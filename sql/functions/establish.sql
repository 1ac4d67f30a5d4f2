-- pgevict.establish() returns (epoch uuid, fresh boolean)
--
-- The epoch of this server's memory, founding a new one where the old one is gone; the only writer of pgevict.epoch.
-- fresh: this call founded it. Called by a reader that finds the row missing or its identity wrong; of several at once
-- one founds and all return the same. `pgevict epoch new` and `pgevict epoch adopt` found one by hand.
--
-- The identity of a log is the system identifier, the oid of the database and the oid of pgevict.event. A dump carries
-- the rows of epoch and meta along, so both are compared with the real ones. Another identity than meta's (restore,
-- clone, upgrade): the log, its heartbeats, horizons and every stored position belong to another server, so the log is
-- voided (void_log()) in the same transaction. The first identity ever voids nothing.
--
-- Writes pgevict.epoch, pgevict.meta, and on a new identity pgevict.event, heartbeat, horizon, sweep and warden. READ
-- COMMITTED only: what was decided by whoever held the lock before must be seen.
create or replace function pgevict.establish(out epoch uuid, out fresh boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  here_system constant bigint := (select s.system_identifier from pg_control_system() s);
  here_database constant oid := (select d.oid from pg_database d where d.datname = current_database());
  here_event constant oid := 'pgevict.event'::regclass;
  logged record;
begin
  fresh := false;
  select e.epoch into epoch from pgevict.epoch e
  where e.one and e.system_identifier = here_system and e.database = here_database and e.event_table = here_event;
  if found then
    return;
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'establish: the transaction is %, and only READ COMMITTED sees what others just decided',
        upper(current_setting('transaction_isolation'))
      using errcode = 'invalid_transaction_state', hint = 'Set default_transaction_isolation for this session.';
  end if;

  select m.system_identifier, m.database, m.event_table into logged from pgevict.meta m where m.one for update;
  if not found then
    raise exception 'establish: pgevict.meta is empty' using errcode = 'object_not_in_prerequisite_state',
      hint = 'Run pgevict migrate.';
  end if;
  select e.epoch into epoch from pgevict.epoch e
  where e.one and e.system_identifier = here_system and e.database = here_database and e.event_table = here_event;
  if found then
    return;
  end if;

  fresh := true;
  if logged.system_identifier is not null
    and (logged.system_identifier, logged.database, logged.event_table)
      is distinct from (here_system, here_database, here_event)
  then
    perform pgevict.void_log();
  end if;
  epoch := pgevict.found_epoch();
end
$$;
