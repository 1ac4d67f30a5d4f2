-- pgevict.beat_heart(instance_id text, process uuid, sequence bigint, cursor pg_snapshot) returns void
--
-- Stores the sign of life of one process: the number of its beat and how far it has read, which pins the log from there
-- on. A beat that arrives after a later one changes nothing. Writes one row of pgevict.heartbeat.
create or replace function pgevict.beat_heart(instance_id text, process uuid, sequence bigint, cursor pg_snapshot)
returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into pgevict.heartbeat as h (instance_id, process, sequence, cursor)
  values ($1, $2, $3, $4)
  on conflict on constraint heartbeat_pkey do update
    set sequence = excluded.sequence, cursor = excluded.cursor, beat_at = clock_timestamp()
    where h.sequence < excluded.sequence
$$;
