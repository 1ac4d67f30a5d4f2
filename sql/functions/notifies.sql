-- pgevict.notifies() returns boolean
--
-- Whether writers announce their events by NOTIFY: what the wake mode comes to. set_wake() makes this function anew, so
-- that the mode is a constant in its text; here it is `adaptive`, and a migration ends with set_wake(). Writes nothing.
--
-- Internal. No path is pinned, for then the planner puts the text into the plans of whoever calls it, and reading the
-- mode costs nothing. Making it anew throws these plans away. A plan is made of the text that is committed by then, and
-- not of what the transaction's snapshot shows.
create or replace function pgevict.notifies() returns boolean
language sql stable
as $$ select pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.=) '0' $$;
