-- pgevict.prune(retention interval, batch integer, out deleted bigint, out more boolean) returns record
--
-- One step of pruning; call it, each time in a transaction of its own, until more is false. While events that
-- meta.pruned sees are left, a step deletes at most `batch` of them, oldest first; else it moves pruned on
-- (advance_pruned()). So pruned is committed before any row that it sees is deleted, and its lock is held for no batch.
--
-- Where it goes on is kept in pgevict.sweep: below the place of the last batch nothing is left, so the index is not
-- walked through what was deleted before. The target of a sweep is fixed at its start: had it grown on the way, an
-- event of a long transaction behind the place would be passed over. A step with nothing to do writes and locks
-- nothing.
--
-- Writes pgevict.sweep, deletes from pgevict.event, writes pgevict.meta through advance_pruned(). READ COMMITTED only:
-- an older snapshot would not see all that it has to delete. Writers of events are never waited for, nor do they wait.
create or replace function pgevict.prune(retention interval, batch integer, out deleted bigint, out more boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  s pgevict.sweep;
  pruned pg_snapshot;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'pgevict: events can be pruned in READ COMMITTED only, this transaction is %',
        upper(current_setting('transaction_isolation'))
      using errcode = 'invalid_transaction_state', hint = 'Use pgevict prune, or a READ COMMITTED transaction.';
  end if;
  if batch is null or batch < 1 then
    raise exception 'prune: a batch of % events', coalesce(batch::text, 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'Give 1 or more.';
  end if;
  deleted := 0;
  select w.* into s from pgevict.sweep w where w.one;
  select m.pruned into pruned from pgevict.meta m where m.one;
  if s.target is null and coalesce(pgevict.covers(s.base, pruned), false) then
    more := pgevict.advance_pruned(retention);
    return;
  end if;

  select w.* into s from pgevict.sweep w where w.one for update;
  select m.pruned into pruned from pgevict.meta m where m.one;
  if s.target is null then
    s.target := pruned;
    s.after_xid := coalesce(pg_snapshot_xmin(s.base), '0');
    s.after_id := 0;
  end if;
  with gone as (
    delete from pgevict.event e
    where e.ctid = any (array(
      select o.ctid from pgevict.event o
      where (o.xid, o.id) > (s.after_xid, s.after_id) and o.xid < pg_snapshot_xmax(s.target)
        and pg_visible_in_snapshot(o.xid, s.target)
      order by o.xid, o.id
      limit batch))
    returning e.xid, e.id)
  select count(*) over (), g.xid, g.id into deleted, s.after_xid, s.after_id
  from gone g order by g.xid desc, g.id desc limit 1;
  deleted := coalesce(deleted, 0);
  if deleted < batch then
    s.base := s.target;
    s.target := null;
    s.after_xid := '0';
    s.after_id := 0;
  end if;
  update pgevict.sweep w
  set base = s.base, target = s.target, after_xid = s.after_xid, after_id = s.after_id
  where w.one;
  more := true;
end
$$;
