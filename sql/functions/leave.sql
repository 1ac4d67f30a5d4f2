-- pgevict.leave(instance_id text, process uuid) returns void
--
-- Removes the sign of life of a process that stops, so that it pins nothing any more, and gives back the office of the
-- warden if it holds it. Deletes from pgevict.heartbeat, writes pgevict.warden.
create or replace function pgevict.leave(instance_id text, process uuid) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  select pgevict.release_warden($1, $2);
  delete from pgevict.heartbeat h where h.instance_id = $1 and h.process = $2
$$;
