-- pgevict.claim_warden(instance_id text, process uuid, lease interval) returns bigint
--
-- The fencing number if this process is the warden from now on, for as long as `lease`; null if another one is. The
-- owner renews by calling it again and keeps its number; a new owner gets the next one. Two wardens for a moment do no
-- harm: the chores lock what they change.
--
-- Writes one row of pgevict.warden, and only when the claim succeeds: who asks in vain writes and locks nothing, and
-- nobody waits (a row locked by another claim counts as taken). Ages are compared without their sign: a clock that was
-- set back must not leave a dead owner in office.
create or replace function pgevict.claim_warden(instance_id text, process uuid, lease interval) returns bigint
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  taken constant text := 'select w.* from pgevict.warden w where w.one and (w.process is null '
    'or (w.instance_id = $1 and w.process = $2) '
    'or abs(extract(epoch from clock_timestamp() - w.renewed_at)) >= extract(epoch from w.lease))';
  free pgevict.warden;
begin
  execute taken into free using claim_warden.instance_id, claim_warden.process;
  if free.one is null then
    return null;
  end if;
  execute taken || ' for update skip locked' into free using claim_warden.instance_id, claim_warden.process;
  if free.one is null then
    return null;
  end if;
  if (free.instance_id, free.process) is distinct from (claim_warden.instance_id, claim_warden.process) then
    free.fence := free.fence + 1;
  end if;
  update pgevict.warden w
  set fence = free.fence, instance_id = claim_warden.instance_id, process = claim_warden.process,
      renewed_at = clock_timestamp(), lease = claim_warden.lease
  where w.one;
  return free.fence;
end
$$;
