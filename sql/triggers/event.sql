-- What guards the log, whoever writes to it: ALWAYS, since session_replication_role = replica must not switch it off.
--
-- Only what is missing is made: making a trigger again would lock the log, and with it every writer of events, each time
-- the functions are applied. A trigger that has to change changes in a migration.
do $do$
declare
  wanted constant text[] := array[
    ['drop_foreign', 'before insert', '', 'for each row when (new.xid is distinct from pg_catalog.pg_current_xact_id())'],
    ['note_deletion', 'after delete', 'referencing old table as pgevict_gone', 'for each statement'],
    ['note_truncation', 'before truncate', '', 'for each statement']];
begin
  for n in 1 .. array_length(wanted, 1) loop
    continue when exists (
      select from pg_catalog.pg_trigger
      where tgrelid = 'pgevict.event'::pg_catalog.regclass and tgname = wanted[n][1]);
    execute pg_catalog.format('create trigger %I %s on pgevict.event %s %s execute function pgevict.%I()',
      wanted[n][1], wanted[n][2], wanted[n][3], wanted[n][4], wanted[n][1]);
    execute pg_catalog.format('alter table pgevict.event enable always trigger %I', wanted[n][1]);
  end loop;
end
$do$;
