-- What guards the log, whoever writes to it: ALWAYS, since session_replication_role = replica must not switch it off.
create or replace trigger drop_foreign before insert on pgevict.event
  for each row when (new.xid is distinct from pg_catalog.pg_current_xact_id())
  execute function pgevict.drop_foreign();
alter table pgevict.event enable always trigger drop_foreign;

create or replace trigger note_deletion after delete on pgevict.event
  referencing old table as pgevict_gone
  for each statement execute function pgevict.note_deletion();
alter table pgevict.event enable always trigger note_deletion;

create or replace trigger note_truncation before truncate on pgevict.event
  for each statement execute function pgevict.note_truncation();
alter table pgevict.event enable always trigger note_truncation;
