-- pgevict.announce() returns "char"
--
-- Decides how the events of this transaction are announced, and does it: 'n' by a NOTIFY in this transaction, 'b' left
-- to the bell, '-' not at all (polling finds them).
--
-- Internal: called by whatever writes events, in the very INSERT. The order of the decision: `pgevict.wake = 'off'` of
-- the transaction (any other value is ignored, never an error), then the mode (notifies()). PREPARE TRANSACTION fails
-- after a NOTIFY, so `adaptive` does not notify where prepared transactions are possible. Without a bell, what would be
-- left to it is left to polling.
--
-- Trap: the transaction has its id before this runs, by the default of the column xid, which stands before `announced`.
-- Whoever puts the bell to sleep waits for all transactions that had an id when the last beat lapsed; a writer that
-- reads the beat first and takes its id later would be missed.
--
-- No path is pinned and every name has its schema, for then the planner puts this text into the INSERT: a call would
-- cost as much as the rest of it.
--
-- The notification is constant: channel pgevict, no payload. The server merges repeats within a transaction, there is
-- no size to exceed, and nothing to read or forge.
create or replace function pgevict.announce() returns "char"
language sql volatile
as $$
  select case
      when pg_catalog.current_setting('pgevict.wake', true) operator(pg_catalog.=) 'off' then '-'
      when pgevict.notifies() then case when pg_catalog.pg_notify('pgevict', '') is null then '-' else 'n' end
      else '-'
    end::pg_catalog."char"
$$;
