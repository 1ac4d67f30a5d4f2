-- pgevict.release_warden(instance_id text, process uuid) returns void
--
-- Gives the office back if this process holds it; the next claim of anybody succeeds. Writes one row of pgevict.warden.
create or replace function pgevict.release_warden(instance_id text, process uuid) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  update pgevict.warden w set instance_id = null, process = null
  where w.one and w.instance_id = $1 and w.process = $2
$$;
