-- pgevict.watch_placed(definition jsonb, target text) returns text
--
-- SQL for a condition: every column that counts has the number and the name it had when the table was watched. `target`
-- is SQL for the number of the table; another table than the watched one was restored, and is taken by name. Writes
-- nothing.
create or replace function pgevict.watch_placed(definition jsonb, target text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('(pgevict.in_place(%s, %L, %L) or %s <> %1$s)', (definition ->> 'relation')::oid,
    coalesce(array_agg(w.number::integer order by w.name collate "C"), '{}'),
    coalesce(array_agg(w.name order by w.name collate "C"), '{}'), target)
  from jsonb_each_text(definition -> 'attributes') w (name, number)
$$;
