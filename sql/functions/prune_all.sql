-- pgevict.prune_all() returns void
--
-- Declares every event up to now as gone: meta.pruned becomes the current snapshot. For deletions that no rule foresaw.
-- READ COMMITTED only, and the lock in a statement of its own: see note_deletion(). Writes pgevict.meta.
create or replace function pgevict.prune_all() returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'pgevict: events can be removed in READ COMMITTED only, this transaction is %',
        upper(current_setting('transaction_isolation'))
      using errcode = 'invalid_transaction_state', hint = 'Use pgevict prune, or a READ COMMITTED transaction.';
  end if;
  perform from pgevict.meta m where m.one for update;
  update pgevict.meta set pruned = pg_current_snapshot() where one;
end
$$;
