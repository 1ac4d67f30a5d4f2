-- What guards our tables, whoever writes to them: ALWAYS, since session_replication_role = replica must not switch it off.
-- drop_applied is there for that role alone.
--
-- Only what is missing is made: making a trigger again would lock the table, and with it every writer of events, each
-- time the functions are applied. A trigger that has to change changes in a migration. One that is not ALWAYS was
-- switched off by a restore with --disable-triggers, which let rows of another log in: the log is made a new one.
do $do$
declare
  applied constant text := 'for each row when (pg_catalog.pg_trigger_depth() = 0)';
  wanted constant text[] := array[
    ['event', 'drop_foreign', 'before insert', '',
     'for each row when (new.xid is distinct from pg_catalog.pg_current_xact_id())'],
    ['event', 'note_deletion', 'after delete', 'referencing old table as pgevict_gone', 'for each statement'],
    ['event', 'note_truncation', 'before truncate', '', 'for each statement'],
    ['heartbeat', 'drop_foreign', 'before insert', '', 'for each row when (new.beat_at < transaction_timestamp())'],
    ['watch', 'drop_foreign', 'before insert', '', 'for each row when (new.installed_at < transaction_timestamp())'],
    ['checked', 'drop_foreign', 'before insert', '', 'for each row when (new.since < transaction_timestamp())'],
    ['horizon', 'drop_foreign', 'before insert', '', 'for each row when (new.taken_at < transaction_timestamp())'],
    ['meta', 'keep_first', 'before insert', '', 'for each row'],
    ['epoch', 'keep_first', 'before insert', '', 'for each row'],
    ['warden', 'keep_first', 'before insert', '', 'for each row'],
    ['sweep', 'keep_first', 'before insert', '', 'for each row'],
    -- What a subscription applies: the epoch, being unlogged, is in no publication.
    ['event', 'drop_applied', 'before insert or update or delete', '', applied],
    ['heartbeat', 'drop_applied', 'before insert or update or delete', '', applied],
    ['watch', 'drop_applied', 'before insert or update or delete', '', applied],
    ['checked', 'drop_applied', 'before insert or update or delete', '', applied],
    ['horizon', 'drop_applied', 'before insert or update or delete', '', applied],
    ['meta', 'drop_applied', 'before insert or update or delete', '', applied],
    ['warden', 'drop_applied', 'before insert or update or delete', '', applied],
    ['sweep', 'drop_applied', 'before insert or update or delete', '', applied]];
  on_table text;
  name text;
  standing "char";
  wanted_state "char";
  breached boolean := false;
begin
  for n in 1 .. array_length(wanted, 1) loop
    on_table := pg_catalog.format('pgevict.%I', wanted[n][1]);
    name := wanted[n][2];
    wanted_state := case name when 'drop_applied' then 'R' else 'A' end;
    select tgenabled into standing
    from pg_catalog.pg_trigger where tgrelid = on_table::pg_catalog.regclass and tgname = name;
    continue when standing = wanted_state;
    if standing is null then
      execute pg_catalog.format('create trigger %I %s on %s %s %s execute function pgevict.%I()',
        name, wanted[n][3], on_table, wanted[n][4], wanted[n][5], name);
    else
      breached := true;
    end if;
    execute pg_catalog.format('alter table %s enable %s trigger %I', on_table,
      case wanted_state when 'R' then 'replica' else 'always' end, name);
  end loop;
  if breached then
    perform pgevict.epoch_new();
  end if;
end
$do$;
