-- pgevict.watch_functions() returns setof oid
--
-- The functions of the statement triggers that watch_build() made, known by their name: nobody else creates in the
-- schema. Row functions, which have _row behind that name, are not among them. Writes nothing.
create or replace function pgevict.watch_functions(out function oid) returns setof oid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.oid from pg_proc p
  where p.pronamespace = 'pgevict'::regnamespace and p.proname ~ '^fired_[0-9]+_[0-9a-f]+$'
$$;
