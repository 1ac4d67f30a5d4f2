-- pgevict.watch_rows_state(definition jsonb, target oid, fired text) returns boolean
--
-- True when the table carries what its watch by row needs beside its statement triggers (watch_rows()), all of it
-- enabled, clones on partitions included, and the row function is what this definition makes; or when its watch needs
-- none of it. A partition is never whole: statements through its parent do not fire its statement triggers.
-- `fired` is the function of the statement triggers. Says nothing about the statement triggers of partitions: see
-- watch_parts(). Writes nothing.
create or replace function pgevict.watch_rows_state(definition jsonb, target oid, fired text) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with mine as (
    select t.tgrelid, t.tgname, t.tgfoid,
      t.tgenabled = 'A' or (t.tgenabled = 'O' and (definition ->> 'fire_on_replica')::boolean is not true) as works
    from pg_trigger t
      -- Anybody may give a trigger of his own such a name.
      join pg_proc f on f.oid = t.tgfoid and f.pronamespace = 'pgevict'::regnamespace
    where t.tgname in (
      select 'pgevict_' || w.what || '_' || pgevict.watch_token(definition)
      from unnest(array['row', 'before', 'after']) w (what))
  )
  select case
      when c.relispartition then false
      when not pgevict.watch_by_row(definition, target) then true
      else (select count(*) = 3 from mine m where m.tgrelid = target)
        and (select bool_and(m.works) from mine m)
        and exists (
          select from mine m join pg_proc p on p.oid = m.tgfoid
          where m.tgrelid = target and p.proname = fired || '_row' and p.pronamespace = 'pgevict'::regnamespace
            and p.prosrc = pgevict.watch_row_source(definition, target))
    end
  from pg_class c
  where c.oid = target
$$;
