-- pgevict.check_watches(budget interval) returns setof (schema_name, table_name, state, reason)
--
-- Compares every watch with what it was at the last check, and emits the heads of those that could have let a change
-- pass untold, as type {table}.checked:
--   at every check  while a watch is not whole: drifted, a trigger disabled, or the triggers gone; once more when it is
--                   whole again
--   once            when its fingerprint differs (watch_fingerprints()), when it was never compared, and when its table
--                   is dropped and no other has its name, or a watch without a record has lost its triggers
-- Returns the watches that are not whole. One by one, each event together with what was compared: what was not told is
-- not noted. A watch that another session is about to change (its row is locked for over 100 ms) is left for the next
-- check; one that cannot be judged counts as drifted.
-- Whether a watch is whole is worked out (some ms each) only when something it depends on has moved, and for no longer
-- than `budget`: after an upgrade that is so for all of them, and what is left over is left for the next check.
--
-- Writes events, pgevict.checked, and through watch_sweep() drops the trigger function of a dropped table. When all is
-- as it was it writes nothing. It reads the catalogue and locks no table of the user's. Two at once tell a thing twice.
create or replace function pgevict.check_watches(
  budget interval default '3 seconds', out schema_name text, out table_name text, out state text, out reason text
) returns setof record
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '100ms'
as $$
declare
  one record;
  carried jsonb;
  ends constant timestamptz := clock_timestamp() + budget;
  judged integer := 0;
  moved boolean;
  later boolean;
begin
  for one in
    select coalesce(f.target, c.target) as target, f.target is null as over, f.fingerprint, f.basis, f.parts, c.definition,
      c.fingerprint as was_fingerprint, c.basis as was_basis, c.state as was_state, c.reason as was_reason,
      w.definition as recorded, coalesce(n.nspname, w.schema_name) as schema_name,
      coalesce(r.relname, w.table_name) as table_name
    from pgevict.watch_fingerprints() f
      full join pgevict.checked c on c.target = f.target
      left join pgevict.watch w on w.target = f.target
      left join pg_class r on r.oid = f.target
      left join pg_namespace n on n.oid = r.relnamespace
    where f.target is null or c.target is null or c.basis <> f.basis or c.state <> 'ok'
    -- First what is known to be told, last what most likely is as it was.
    order by f.basis is distinct from c.basis, f.fingerprint is not distinct from c.fingerprint, 1
  loop
    schema_name := one.schema_name;
    table_name := one.table_name;
    carried := one.definition;
    state := one.was_state;
    reason := one.was_reason;
    moved := one.basis is distinct from one.was_basis and not one.over;
    later := moved and judged > 0 and clock_timestamp() > ends;
    continue when later and coalesce(state, 'ok') = 'ok';
    begin
      if not later and (moved or state in ('missing', 'gone')) then
        judged := judged + moved::integer;
        select s.definition, s.state into carried, state from pgevict.watch_state(one.target) s;
        if carried is null then
          carried := one.definition;
          state := case
            when one.fingerprint <> '' or exists (
              select from pg_class r join pg_namespace n on n.oid = r.relnamespace
              where n.nspname = one.schema_name and r.relname = one.table_name)
            then 'missing' else 'gone' end;
        end if;
        reason := null;
        if state <> 'ok' then
          reason := (pgevict.watch_reason(coalesce(carried, one.recorded), one.target)).reason;
        end if;
      end if;
    exception
      when others then
        state := 'drifted';
        reason := format('it could not be checked: %s', sqlerrm);
        one.basis := '';
    end;

    begin
      if one.over then
        delete from pgevict.checked c where c.target = one.target;
      end if;
      if (case when one.over or state = 'gone' then one.was_state is distinct from 'gone'
        else state <> 'ok' or one.was_state <> 'ok' or one.fingerprint is distinct from one.was_fingerprint end)
      then
        perform pgevict.emit_heads(d.definition, format('%s.checked', d.definition ->> 'table'))
        from (select carried union select one.recorded) d (definition)
        where d.definition is not null;
      end if;
      continue when one.over;
      if not later and (one.basis, state, reason) is distinct from (one.was_basis, one.was_state, one.was_reason) then
        insert into pgevict.checked as c (target, definition, fingerprint, basis, state, reason, parts)
        values (one.target, carried, one.fingerprint, one.basis, check_watches.state, check_watches.reason, one.parts)
        on conflict on constraint checked_pkey do update
          set definition = excluded.definition, fingerprint = excluded.fingerprint, basis = excluded.basis,
            state = excluded.state, reason = excluded.reason, parts = excluded.parts,
            since = case when c.state = excluded.state then c.since else excluded.since end,
            detached = array(
              select p from unnest(c.detached || c.parts) p
              where p <> all (excluded.parts) and exists (select from pg_class r where r.oid = p));
        if state = 'gone' then
          perform pgevict.watch_sweep();
        end if;
      end if;
    exception
      when lock_not_available or deadlock_detected then
        continue;
    end;
    if state <> 'ok' then
      return next;
    end if;
  end loop;
end
$$;
