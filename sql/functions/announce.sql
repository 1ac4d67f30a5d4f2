-- pgevict.announce() returns "char"
--
-- Decides how the events of this transaction are announced, and does it: 'n' by a NOTIFY in this transaction, 'b' left
-- to the bell, '-' not at all (polling finds them).
--
-- Internal: called by whatever writes events; the functions of watches have the same decision in their INSERTs
-- (announcing()). The order of the decision: `pgevict.wake = 'off'` of the transaction
-- (any other value is ignored, never an error), then the mode in pgevict.meta. PREPARE TRANSACTION fails after a
-- NOTIFY, so `adaptive` does not notify where prepared transactions are possible. Without a bell, what would be left
-- to it is left to polling.
--
-- Trap: it takes the transaction's id first of all. Whoever puts the bell to sleep waits for all transactions that had
-- an id when the last beat lapsed; a writer that reads the beat first and takes its id later would be missed.
--
-- One query and no variables: it runs for every event, and PL/pgSQL sets up each expression anew in each transaction.
--
-- The notification is constant: channel pgevict, no payload. The server merges repeats within a transaction, there is
-- no size to exceed, and nothing to read or forge.
create or replace function pgevict.announce() returns "char"
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce((
      select case
        when pg_current_xact_id() is null then '-'
        when current_setting('pgevict.wake', true) = 'off' then '-'
        when m.wake = 'commit' or (m.wake = 'adaptive' and current_setting('max_prepared_transactions') = '0')
          then case when pg_notify('pgevict', '') is null then '-' else 'n' end
        else '-'
      end
      from pgevict.meta m where m.one
    ), '-');
end
$$;
