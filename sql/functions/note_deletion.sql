-- pgevict.note_deletion() returns trigger
--
-- After DELETE on the log: what is gone must be known to be gone. If an event was deleted that meta.pruned does not see
-- yet, pruned becomes the current snapshot, which voids every cursor that has not read that far. Pruning sets pruned
-- first and then deletes only what it sees, so it passes without any mark that others could set as well.
--
-- Writes pgevict.meta. Outside READ COMMITTED it raises: the snapshot could be older than events others wrote. The row of
-- meta is locked in a statement of its own: an UPDATE that waits for it would store a snapshot from before the wait, and
-- pruned only grows.
create or replace function pgevict.note_deletion() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (
    select from pgevict_gone g, pgevict.meta m where m.one and not pg_visible_in_snapshot(g.xid, m.pruned))
  then
    return null;
  end if;
  perform pgevict.prune_all();
  return null;
end
$$;
