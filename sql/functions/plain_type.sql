-- pgevict.plain_type(type oid) returns boolean
--
-- True for types of pg_catalog that are no composites, for enums, and for domains over and arrays of these: two of
-- their values print alike only if their bytes are alike. Writes nothing.
create or replace function pgevict.plain_type(type oid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(bool_or(e.typtype = 'e' or (e.typtype = 'b' and e.typnamespace = 'pg_catalog'::regnamespace)), false)
  from pg_type t
    join pg_type e on e.oid = pgevict.base_of(case when t.typcategory = 'A' and t.typelem <> 0 then t.typelem else t.oid end)
  where t.oid = pgevict.base_of(type)
$$;
