-- pgevict.watch_rows(definition jsonb, target regclass, fired text) returns void
--
-- Puts what a watch by row (watch_by_row()) has beside its statement triggers on the table and its partitions. TOKEN is
-- watch_token(), `fired` the function of the statement triggers; the row function (watch_row_source()) has _row behind
-- that name.
--   pgevict_row_TOKEN            row trigger, silent while a statement through the table runs (watch_mark()).
--                                PostgreSQL clones it to each partition, and takes it off a detached one. Its condition
--                                is asked when the row is changed, so a row that is not told costs no place in the queue.
--   pgevict_before_, _after_     statement triggers on the table that say when one runs
--   pgevict_part_before_, _after_, _truncate_  on each partition: say when a statement names it; TRUNCATE of it alone
--
-- Internal: for watch(), with its caller's rights and under its locks.
create or replace function pgevict.watch_rows(definition jsonb, target regclass, fired text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  token constant text := pgevict.watch_token(definition);
  mode constant text := case when (definition ->> 'fire_on_replica')::boolean then 'always ' else '' end;
  untold constant text := format(
    'substr(current_setting(%L, true), pg_trigger_depth() + 1, 1) is distinct from ''1''', 'pgevict.through_' || token);
  one record;
begin
  for one in
    select w.on_table, 'pgevict_' || w.name || '_' || token as name, w.rest
    from (
      select target as on_table, 1 as n, 'row' as name,
        format('after insert or update or delete on %s for each row when (%s) execute function pgevict.%I()',
          target, untold, fired || '_row') as rest
      union all
      select target, 2, m, format('%s insert or update or delete or truncate on %s for each statement '
        'execute function pgevict.watch_mark(''through'', %L)', m, target, token)
      from unnest(array['before', 'after']) m
      union all
      select p.relid, 3, 'part_' || m, format('%s insert or update or delete on %s for each statement '
        'execute function pgevict.watch_mark(''direct'', %L)', m, p.relid::regclass, token)
      from pg_partition_tree(target) p, unnest(array['before', 'after']) m
      where p.relid <> target
      union all
      select p.relid, 3, 'part_truncate', format('after truncate on %s for each statement when (%s) '
        'execute function pgevict.%I()', p.relid::regclass, untold, fired || '_row')
      from pg_partition_tree(target) p
      where p.relid <> target
    ) w
    order by w.n, w.on_table::oid, w.name
  loop
    execute format('create or replace trigger %I %s', one.name, one.rest);
    execute format('alter table %s enable %strigger %I', one.on_table, mode, one.name);
  end loop;
end
$$;
