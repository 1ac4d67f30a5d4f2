-- pgevict.drop_foreign() returns trigger
--
-- Before each row that enters a table and was not made by this transaction: drops it. Such a row comes from replication
-- or from a restore and belongs to another server's log. How to tell stands as a condition in each trigger: an event by
-- its transaction id, a heartbeat, a horizon and a watch by a time from before this transaction. Writes nothing.
create or replace function pgevict.drop_foreign() returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return null;
end
$$;
