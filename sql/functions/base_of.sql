-- pgevict.base_of(type oid) returns oid
--
-- The type itself, or what a domain comes down to. Writes nothing.
create or replace function pgevict.base_of(type oid) returns oid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive bases as (
    select t.oid, t.typbasetype from pg_type t where t.oid = type
    union all
    select t.oid, t.typbasetype from bases b join pg_type t on t.oid = b.typbasetype
  )
  select b.oid from bases b where b.typbasetype = 0
$$;
