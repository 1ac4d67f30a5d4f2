-- pgevict.note_horizon(retention_max interval) returns void
--
-- Stores the current snapshot with the time, for pruning to pick from later, and removes what has served its time:
-- horizons older than retention_max (in either direction: the clock may have been set back) and heartbeats older than
-- 120 s. A process whose heartbeat is that old sends a new one and goes on. The newest of the old horizons stays: with a
-- retention_max that is no longer than the retention there would be none to pick, and the log would grow.
--
-- Writes pgevict.horizon, deletes from it and from pgevict.heartbeat. A horizon outlives a crash: its row has a
-- transaction id above all that it sees, so none of these is handed out again. In a transaction with an older snapshot
-- it stores that one, which only keeps more.
create or replace function pgevict.note_horizon(retention_max interval) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgevict.horizon (snapshot) values (pg_current_snapshot()) on conflict do nothing;
  delete from pgevict.horizon h
  where abs(extract(epoch from clock_timestamp() - h.taken_at)) > extract(epoch from retention_max)
    and h.taken_at is distinct from (
      select max(o.taken_at) from pgevict.horizon o where o.taken_at < clock_timestamp() - retention_max);
  delete from pgevict.heartbeat h where h.beat_at < clock_timestamp() - interval '120 seconds';
end
$$;
