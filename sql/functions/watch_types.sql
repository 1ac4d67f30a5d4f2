-- pgevict.watch_types(definition jsonb, target oid, source text) returns text
--
-- SQL for a condition: every column that templates name, or that `changes` are told of, has a type that is printed as at
-- the time this SQL was made. A row of the table has the alias `source`. Types that are printed alike stand for each
-- other; in `changes` bigint is not like integer. Writes nothing.
create or replace function pgevict.watch_types(definition jsonb, target oid, source text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(string_agg(
    case
      when definition -> 'shown' ? a.attname and a.atttypid = any (array['int2', 'int4']::regtype[])
        then format('pg_typeof(%s.%I) = any (''{int2,int4}''::regtype[])', source, a.attname)
      when a.atttypid = any (array['int2', 'int4', 'int8']::regtype[]) and (definition -> 'shown' ? a.attname) is not true
        then format('pg_typeof(%s.%I) = any (''{int2,int4,int8}''::regtype[])', source, a.attname)
      when a.atttypid = any (array['text', 'varchar']::regtype[])
        then format('pg_typeof(%s.%I) = any (''{text,varchar}''::regtype[])', source, a.attname)
      when a.atttypid < 16384 then format('pg_typeof(%s.%I) = %L::regtype', source, a.attname, a.atttypid::regtype)
      -- The owner may have no right on the type's schema, so that its name cannot be looked up; and a number does not
      -- outlive a restore.
      else format('pg_typeof(%s.%I)::text = %L', source, a.attname, a.atttypid::regtype)
    end, ' and ' order by a.attname collate "C"), 'true')
  from pg_attribute a
  where a.attrelid = target and a.attnum > 0 and not a.attisdropped
    and (definition -> 'fields' ? a.attname
      or (definition ? 'changes' and (definition -> 'identity' ? a.attname or definition -> 'shown' ? a.attname)))
$$;
