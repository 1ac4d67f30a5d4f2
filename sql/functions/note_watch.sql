-- pgevict.note_watch(target oid, definition jsonb) returns void
--
-- Notes a watch as it stands in this transaction, whose heads have just been emitted: the next check compares with it.
-- Whether it is whole is worked out by that check. Forgets the partitions that were detached before.
--
-- Internal: runs when a watch is installed or changed. Writes one row of pgevict.checked.
create or replace function pgevict.note_watch(target oid, definition jsonb) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into pgevict.checked as c (target, definition, fingerprint, basis, state, parts)
  select f.target, $2, f.fingerprint, '', 'ok', f.parts from pgevict.watch_fingerprints() f where f.target = $1
  on conflict on constraint checked_pkey do update
    set definition = excluded.definition, fingerprint = excluded.fingerprint, basis = excluded.basis, state = excluded.state, reason = null,
      since = excluded.since, parts = excluded.parts, detached = '{}'
$$;
