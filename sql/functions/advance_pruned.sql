-- pgevict.advance_pruned(retention interval) returns boolean
--
-- Declares events as gone that are old enough and that nobody needs; true if there were any. Deletes none of them:
-- prune() does that afterwards, in transactions of its own.
--
-- meta.pruned becomes the newest horizon that is older than `retention`, sees all that pruned sees, and is covered by
-- the cursor of every process with a heartbeat of the last 60 s. So it only grows, and no process that lives is told
-- that it missed something. It stays as it is when it would declare no event: who was away while nothing happened lost
-- nothing.
--
-- Writes pgevict.meta, which is locked at the end and only if there is something to write. READ COMMITTED only: with an
-- older snapshot neither the heartbeats nor pruned would be those of now.
create or replace function pgevict.advance_pruned(retention interval) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  was pg_snapshot;
  next pg_snapshot;
  lowest xid8;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'pgevict: events can be pruned in READ COMMITTED only, this transaction is %',
        upper(current_setting('transaction_isolation'))
      using errcode = 'invalid_transaction_state', hint = 'Use pgevict prune, or a READ COMMITTED transaction.';
  end if;
  select m.pruned into was from pgevict.meta m where m.one;
  -- Spares comparing every horizon with every cursor while one lags. What it passes over comes a horizon later.
  select pg_snapshot_xmax(b.cursor) into lowest
  from pgevict.heartbeat b
  where b.beat_at > clock_timestamp() - interval '60 seconds'
  order by pg_snapshot_xmax(b.cursor) limit 1;
  select h.snapshot into next
  from pgevict.horizon h
  where h.taken_at <= clock_timestamp() - retention
    and (lowest is null or pg_snapshot_xmax(h.snapshot) <= lowest)
    and pgevict.covers(h.snapshot, was)
    and not exists (
      select from pgevict.heartbeat b
      where b.beat_at > clock_timestamp() - interval '60 seconds' and not pgevict.covers(b.cursor, h.snapshot))
  order by h.taken_at desc
  limit 1;
  if next is null or not exists (
    select from pgevict.event e
    where e.xid >= pg_snapshot_xmin(was) and e.xid < pg_snapshot_xmax(next)
      and pg_visible_in_snapshot(e.xid, next) and not pg_visible_in_snapshot(e.xid, was))
  then
    return false;
  end if;
  -- Whoever changed it in between (a deletion by hand) is seen by the UPDATE, which reads the row anew after its wait.
  update pgevict.meta m set pruned = next where m.one and pgevict.covers(next, m.pruned);
  return found;
end
$$;
