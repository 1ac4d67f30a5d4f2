-- pgevict.drop_foreign() returns trigger
--
-- Before each row that enters the log with a transaction id that is not this transaction's: drops it. Such a row comes
-- from replication or from a restore; it belongs to another server's log. The condition stands in the trigger.
create or replace function pgevict.drop_foreign() returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return null;
end
$$;
