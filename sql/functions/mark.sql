-- pgevict.mark(replayed pg_lsn default null) returns text
--
-- What a cache has to know about a read that its fill token does not vouch for: one made on a standby, or in a
-- transaction that was open before. Called in the statement that reads, or in an earlier one of the same transaction;
-- its text goes into `Mark` of the library. Writes nothing.
--
-- Fields, separated by semicolons; - is null:
--   1                   version of the form
--   system identifier; oid of the database; oid of pgevict.event    which log this is
--   epoch               of the server's memory; on a standby the logged copy: unlogged tables cannot be read there
--   primary, standby    where it was called
--   transaction id      of the own transaction, if it has one: what it reads may never be committed
--   replayed            on a standby, in READ COMMITTED only
--   snapshot            of the calling statement
--
-- replayed: what pg_last_wal_replay_lsn() gave in an EARLIER statement of the same READ COMMITTED transaction. Read in
-- the statement that reads the data, or later, it claims more than that statement's snapshot saw, and a cache would
-- keep what is stale for ever; from another transaction it may be of another server. In REPEATABLE READ the snapshot is
-- that of the first statement, so no statement is early enough and the argument is ignored.
--
-- STABLE, so that it speaks of the snapshot of the calling statement: a VOLATILE function in the same place would take
-- a newer one than the data was read with. Not in SQL, so that it is never inlined, and so that the branch for the
-- other kind of server is not planned. Outside of recovery the unlogged epoch is read: whoever began on a standby that
-- was promoted meanwhile has the snapshot of a standby, and finds no epoch.
create or replace function pgevict.mark(replayed pg_lsn default null) returns text
language plpgsql stable parallel safe security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  standby constant boolean := pg_is_in_recovery();
  epoch uuid;
begin
  if standby then
    epoch := (select m.epoch from pgevict.meta m where m.one);
  else
    epoch := (select e.epoch from pgevict.epoch e where e.one);
  end if;
  if not standby or current_setting('transaction_isolation') <> 'read committed' then
    replayed := null;
  end if;
  return concat_ws(';', 1,
    (select s.system_identifier from pg_control_system() s),
    (select d.oid from pg_database d where d.datname = current_database()),
    'pgevict.event'::regclass::oid,
    coalesce(epoch::text, '-'),
    case when standby then 'standby' else 'primary' end,
    coalesce(pg_current_xact_id_if_assigned()::text, '-'),
    coalesce(replayed::text, '-'),
    pg_current_snapshot());
end
$$;
