-- pgevict.epoch_adopt() returns boolean
--
-- Keeps the log and its stored positions over a planned pg_upgrade. That gives the server another system identifier, by
-- which the first instance to connect would take the log for another server's and empty it; so this is called before
-- any instance runs. A new epoch is founded, for what lived in memory is gone.
--
-- Returns whether anything was to be done: the identity may be the stored one already. Refused (55000) when the log
-- knows a transaction id that this server has not handed out yet. pg_upgrade carries the counter over, a restore does
-- not, and then new events would get ids that stored positions count as read.
-- READ COMMITTED only.
create or replace function pgevict.epoch_adopt() returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  stored record;
  known numeric;
  next constant numeric := pg_snapshot_xmax(pg_current_snapshot())::text::numeric;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'epoch_adopt: the transaction is %, and only READ COMMITTED sees what others just decided',
        upper(current_setting('transaction_isolation'))
      using errcode = 'invalid_transaction_state', hint = 'Set default_transaction_isolation for this session.';
  end if;
  select m.system_identifier, m.database, m.event_table, m.pruned into stored from pgevict.meta m where m.one for update;
  if stored.system_identifier is null
    or (stored.system_identifier, stored.database, stored.event_table) is not distinct from (
      (select s.system_identifier from pg_control_system() s),
      (select d.oid from pg_database d where d.datname = current_database()),
      'pgevict.event'::regclass::oid)
  then
    return false;
  end if;

  select max(x.id) into known from (
    select max(e.xid)::text::numeric + 1 as id from pgevict.event e
    union all select pg_snapshot_xmax(stored.pruned)::text::numeric
    union all select max(pg_snapshot_xmax(h.snapshot))::text::numeric from pgevict.horizon h
    union all select max(pg_snapshot_xmax(b.cursor))::text::numeric from pgevict.heartbeat b
  ) x;
  if known > next then
    raise exception 'epoch_adopt: the log knows transactions below %, and this server is only at %: its database was restored rather than upgraded',
        known, next
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Leave it: the first instance to connect empties the log and tells every cache. Or call pgevict epoch new.';
  end if;
  perform pgevict.found_epoch();
  return true;
end
$$;
