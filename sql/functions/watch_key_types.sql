-- pgevict.watch_key_types(definition jsonb, target oid, source text) returns text
--
-- SQL for a condition: where watch_key() is compared by an operator, its column has a type that this operator is for. A
-- row of the table has the alias `source`. Writes nothing.
create or replace function pgevict.watch_key_types(definition jsonb, target oid, source text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
      when count(*) = 1 and bool_and(a.atttypid = any (array['int2', 'int4', 'int8']::regtype[]))
        then format('pg_typeof(%s.%I) = any (''{int2,int4,int8}''::regtype[])', source, min(a.attname))
      when count(*) = 1 and bool_and(a.atttypid = 'uuid'::regtype)
        then format('pg_typeof(%s.%I) = ''uuid''::regtype', source, min(a.attname))
      else 'true'
    end
  from jsonb_array_elements_text(coalesce(nullif(definition -> 'identity', 'null'), '[]')) c (name)
    join pg_attribute a on a.attrelid = target and a.attname = c.name and a.attnum > 0 and not a.attisdropped
$$;
