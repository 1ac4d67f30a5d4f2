-- pgevict.watch_state(target oid) returns (definition jsonb, state text)
--
-- The definition that the triggers of a table carry, and whether they do what it says. No definition: no watch. Writes
-- nothing.
--   ok       all four triggers are there, alike and enabled (with fire_on_replica: ALWAYS), all columns are as they
--            were, the function that the triggers call is what this definition makes, and so is what a watch by row has
--            beside them (watch_rows_state())
--   drifted  not so: what is still enabled emits the heads of all templates instead of keys
create or replace function pgevict.watch_state(target oid, out definition jsonb, out state text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  arguments bytea;
  whole boolean;
  always boolean;
  source text;
  name text;
begin
  select (array_agg(t.tgargs order by t.tgname))[1],
    count(*) filter (where t.tgenabled in ('O', 'A')) = 4 and count(distinct t.tgargs) = 1 and count(distinct p.oid) = 1,
    bool_and(t.tgenabled = 'A'), min(p.prosrc), min(p.proname)
  into arguments, whole, always, source, name
  from pg_trigger t
    join pgevict.watch_functions() f on f.function = t.tgfoid
    join pg_proc p on p.oid = f.function
  where t.tgrelid = target and not t.tgisinternal;
  if arguments is null then
    return;
  end if;
  -- Each argument is stored with a NUL behind it; ours is one.
  definition := convert_from(substring(arguments from 1 for octet_length(arguments) - 1), getdatabaseencoding());
  state := case
    when whole and (always or (definition ->> 'fire_on_replica')::boolean is not true)
      and source = pgevict.watch_source(definition, target) and pgevict.watch_rows_state(definition, target, name)
    then 'ok' else 'drifted' end;
end
$$;
