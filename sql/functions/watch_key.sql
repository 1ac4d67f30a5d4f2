-- pgevict.watch_key(definition jsonb, target oid, source text) returns text
--
-- SQL for the value by which old and new rows are paired, of the row with the alias `source`: that of the columns that
-- were the primary key at the time of watch(), as one text, or as it is where that is an integer or a uuid. NULL when
-- there was none.
--
-- What is not text is compared by an operator, and that is one of ours only as long as the column has its type: whoever
-- runs this has to check watch_key_types() in a statement before. Writes nothing.
create or replace function pgevict.watch_key(definition jsonb, target oid, source text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
      when count(*) = 1 and bool_and(a.atttypid = any (array['int2', 'int4', 'int8', 'uuid']::regtype[]))
        then min(format('%s.%I', source, a.attname))
      when count(*) > 0
        then 'row(' || string_agg(format('%s.%I', source, a.attname), ', ' order by c.n) || ')::text collate "C"'
    end
  from jsonb_array_elements_text(coalesce(nullif(definition -> 'identity', 'null'), '[]')) with ordinality c (name, n)
    join pg_attribute a on a.attrelid = target and a.attname = c.name and a.attnum > 0 and not a.attisdropped
$$;
