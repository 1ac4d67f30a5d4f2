-- pgevict.texts_differ(type oid) returns text
--
-- The type, in or behind the given one, whose equal values may have different texts; NULL when there is none. A column
-- of such a type has no place in a template: what was cached under one text is found by a look-up with the other, and a
-- change would drop only one of them. Writes nothing.
--
-- citext; a text with a nondeterministic collation; numeric, float and interval inside of arrays, ranges and
-- composites, where text_of() cannot reach them (1.5 and 1.50 are equal); regclass and its like, whose text is a name
-- that changes without the row.
create or replace function pgevict.texts_differ(type oid) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive parts (oid, inside, ordered_by) as (
    select type, false, 0::oid
    union
    select n.oid, n.inside, n.ordered_by
    from parts p
      join pg_type t on t.oid = p.oid,
      lateral (
        select t.typbasetype, p.inside, t.typcollation where t.typtype = 'd'
        union all select t.typelem, true, 0 where t.typcategory = 'A' and t.typelem <> 0
        union all select r.rngsubtype, true, r.rngcollation from pg_range r where t.oid in (r.rngtypid, r.rngmultitypid)
        union all select a.atttypid, true, a.attcollation from pg_attribute a
          where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
      ) n (oid, inside, ordered_by)
  )
  select format_type(t.oid, null)
  from parts p
    join pg_type t on t.oid = p.oid
    left join pg_collation c on c.oid = p.ordered_by
  where t.typname = 'citext'
    or c.collisdeterministic = false
    or (p.inside and t.oid = any (array['numeric', 'float4', 'float8', 'interval']::regtype[]))
    or (t.typnamespace = 'pg_catalog'::regnamespace and t.typname ~ '^reg' and t.typcategory = 'N')
  limit 1
$$;
