-- pgevict.establish() returns (epoch uuid, fresh boolean)
--
-- The epoch of this server's memory, founding a new one where the old one is gone; the only writer of pgevict.epoch.
-- fresh: this call founded it. Called by a reader that finds the row missing or its identity wrong; of several at once
-- one founds and all return the same.
--
-- The identity of a log is the system identifier, the oid of the database and the oid of pgevict.event. A dump carries
-- the rows of epoch and meta along, so both are compared with the real ones. Another identity than meta's (restore,
-- clone, upgrade): the log, its heartbeats, horizons and every stored position belong to another server, so the log is
-- emptied, meta.pruned set and the warden dismissed, in the same transaction. The first identity ever voids nothing.
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
      hint = 'Uninstall pgevict and migrate again.';
  end if;
  select e.epoch into epoch from pgevict.epoch e
  where e.one and e.system_identifier = here_system and e.database = here_database and e.event_table = here_event;
  if found then
    return;
  end if;

  epoch := gen_random_uuid();
  fresh := true;
  if logged.system_identifier is not null
    and (logged.system_identifier, logged.database, logged.event_table)
      is distinct from (here_system, here_database, here_event)
  then
    update pgevict.meta set pruned = pg_current_snapshot() where one;
    -- Before the events: a step of pruning holds this row while it deletes some of them.
    update pgevict.sweep set base = null, target = null, after_xid = '0', after_id = 0 where one;
    delete from pgevict.event;
    delete from pgevict.heartbeat;
    delete from pgevict.horizon;
    update pgevict.warden set instance_id = null, process = null where one;
  end if;
  delete from pgevict.epoch;
  insert into pgevict.epoch (epoch, system_identifier, database, event_table)
  values (establish.epoch, here_system, here_database, here_event);
  update pgevict.meta
  set epoch = establish.epoch, system_identifier = here_system, database = here_database, event_table = here_event
  where one;
end
$$;
