-- pgevict.note_truncation() returns trigger
--
-- Before TRUNCATE of the log: every event up to now is gone (prune_all()). The table is locked by then, so that no
-- writer of events is under way.
create or replace function pgevict.note_truncation() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgevict.prune_all();
  return null;
end
$$;
