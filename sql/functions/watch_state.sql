-- pgevict.watch_state(target oid) returns (definition jsonb, state text)
--
-- The definition that the triggers of a table carry, and whether they do what it says. No definition: no watch. Writes
-- nothing.
--   ok       all four triggers are there, alike and enabled, all columns are as they were, and the function that the
--            triggers call is what this definition makes
--   drifted  not so: what is still enabled emits the heads of all templates instead of keys
create or replace function pgevict.watch_state(target oid, out definition jsonb, out state text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  arguments bytea;
  whole boolean;
  source text;
begin
  select (array_agg(t.tgargs order by t.tgname))[1],
    count(*) filter (where t.tgenabled in ('O', 'A')) = 4 and count(distinct t.tgargs) = 1 and count(distinct p.oid) = 1,
    min(p.prosrc)
  into arguments, whole, source
  from pg_trigger t
    join pgevict.watch_functions() f on f.function = t.tgfoid
    join pg_proc p on p.oid = f.function
  where t.tgrelid = target and not t.tgisinternal;
  if arguments is null then
    return;
  end if;
  -- Each argument is stored with a NUL behind it; ours is one.
  definition := convert_from(substring(arguments from 1 for octet_length(arguments) - 1), getdatabaseencoding());
  state := case when whole and source = pgevict.watch_source(definition, target) then 'ok' else 'drifted' end;
end
$$;
