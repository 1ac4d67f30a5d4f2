-- pgevict.void_log() returns void
--
-- Empties the log, with all that tells of places in it: it belongs to another server, or to one that this was cloned
-- from. meta.pruned says that every event up to now is gone, and the warden is dismissed.
--
-- Whoever calls it holds the row of pgevict.meta, in READ COMMITTED. Writes pgevict.meta, event, heartbeat, horizon,
-- sweep and warden.
create or replace function pgevict.void_log() returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgevict.meta set pruned = pg_current_snapshot() where one;
  -- Before the events: a step of pruning holds this row while it deletes some of them.
  update pgevict.sweep set base = null, target = null, after_xid = '0', after_id = 0 where one;
  delete from pgevict.event;
  delete from pgevict.heartbeat;
  delete from pgevict.horizon;
  update pgevict.warden set instance_id = null, process = null where one;
end
$$;
