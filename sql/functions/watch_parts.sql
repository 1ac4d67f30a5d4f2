-- pgevict.watch_parts(definition jsonb, target oid) returns setof regclass
--
-- The partitions of a watched table, those of partitions too, that do not carry all statement triggers of the watch
-- (watch_rows()): those that were made or attached since. Their rows are told by the row trigger all the same, which
-- PostgreSQL gives them; a TRUNCATE that names them is not. Writes nothing.
create or replace function pgevict.watch_parts(definition jsonb, target oid) returns setof regclass
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p.relid
  from pg_partition_tree(target) p
  where p.relid <> target
    and (
      select count(*) from pg_trigger t
      where t.tgrelid = p.relid and t.tgparentid = 0 and t.tgenabled in ('O', 'A')
        and t.tgname in (
          select 'pgevict_part_' || w.what || '_' || pgevict.watch_token(definition)
          from unnest(array['before', 'after', 'truncate']) w (what))
    ) < 3
  order by p.level, p.relid::oid
$$;
