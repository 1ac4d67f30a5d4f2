-- pgevict.drop_applied() returns trigger
--
-- Before each row that enters, changes or leaves a table under session_replication_role = replica: lets it pass unless
-- a subscription applies it. Then it is the publisher's, whose log, office, heartbeats and pruning are not ours: a
-- change of its one row of meta would take the place of ours, and its pruning would delete events of ours that happen to
-- have the same numbers.
--
-- The triggers run it at depth 0 only: what our own triggers write because of a row that is applied is ours. Writes
-- nothing.
create or replace function pgevict.drop_applied() returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from pg_stat_subscription s where s.pid = pg_backend_pid()) then
    return null;
  end if;
  if tg_op = 'DELETE' then
    return old;
  end if;
  return new;
end
$$;
