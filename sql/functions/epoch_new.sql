-- pgevict.epoch_new() returns uuid
--
-- Makes this log a new one: it is emptied (void_log()), and a new epoch is founded. For a copy of a database that
-- cannot be told from its original, such as a server whose files were copied while it was stopped: what was stored for
-- the original (positions, events) must not be taken up here. Every running instance empties its caches.
--
-- Returns the new epoch. READ COMMITTED only: what was decided by whoever held the lock before must be seen.
create or replace function pgevict.epoch_new() returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'epoch_new: the transaction is %, and only READ COMMITTED sees what others just decided',
        upper(current_setting('transaction_isolation'))
      using errcode = 'invalid_transaction_state', hint = 'Set default_transaction_isolation for this session.';
  end if;
  perform from pgevict.meta m where m.one for update;
  perform pgevict.void_log();
  return pgevict.found_epoch();
end
$$;
