-- pgevict.leave(instance_id text, process uuid) returns void
--
-- Removes the sign of life of a process that stops, so that it pins nothing any more. Deletes from pgevict.heartbeat.
create or replace function pgevict.leave(instance_id text, process uuid) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  delete from pgevict.heartbeat h where h.instance_id = $1 and h.process = $2
$$;
