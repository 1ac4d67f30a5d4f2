-- pgevict.watch_pairable(definition jsonb, target oid) returns text
--
-- SQL for a condition: watch_key() tells the rows of the old and of the new transition table apart, and none is NULL.
-- NULL when there was no primary key. Writes nothing.
create or replace function pgevict.watch_pairable(definition jsonb, target oid) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select '(' || string_agg(
      format('not exists (select from %s r group by %s having count(*) > 1 or bool_or(num_nulls(%s) > 0))', t.name,
        pgevict.watch_key(definition, target, 'r'), k.columns), ' and ') || ')'
  from (values ('pgevict_old'), ('pgevict_new')) t (name),
    (select string_agg(format('r.%I', c.name), ', ') as columns
     from jsonb_array_elements_text(coalesce(nullif(definition -> 'identity', 'null'), '[]')) c (name)) k
  where k.columns is not null
$$;
