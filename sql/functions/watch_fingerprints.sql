-- pgevict.watch_fingerprints() returns setof (target, fingerprint, basis, parts)
--
-- What each watch can be told by from what it was, of one snapshot: those that triggers carry, and those that are
-- recorded but have no trigger any more (a restored table has another number than its record, but its triggers came
-- along). Writes nothing.
--   fingerprint  of what changes a table unseen by its triggers: the triggers with the transaction that wrote each
--                (DISABLE and ENABLE in between), partitions and children (ATTACH, DETACH), files (a rewrite, a TRUNCATE
--                of a partition), columns. VACUUM FULL and CLUSTER move files too: one event too many. Empty: no table
--   basis        the fingerprint and all else that watch_state() depends on: the trigger functions and this version
--   parts        partitions and children, at any depth
--
-- Plain queries over the catalogue only. A function such as pg_partition_tree() would lock each partition, and look into
-- the catalogue as it is at its own moment: a change could be taken as seen that the other columns do not show. So a
-- change that is committed meanwhile shows in none of them, and in all of them next time.
-- Columns are those of the watched table alone: those of its partitions cannot change without it.
create or replace function pgevict.watch_fingerprints(
  out target oid, out fingerprint text, out basis text, out parts oid[]
) returns setof record
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with recursive fired as materialized (
    select t.tgrelid, t.tgfoid, p.xmin::text as made, concat_ws(' ', t.oid, t.xmin, t.tgenabled) as line
    from pg_trigger t
      join pg_proc p on p.oid = t.tgfoid
    where p.pronamespace = 'pgevict'::regnamespace
  ),
  -- Only the watched table itself carries statement triggers that write events; partitions may carry others.
  targets as (
    select f.tgrelid as target from fired f
    where f.tgfoid in (select w.function from pgevict.watch_functions() w)
    union
    select w.target from pgevict.watch w
    where not exists (
      select from fired f
        join pg_class c on c.oid = f.tgrelid
        join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = w.schema_name and c.relname = w.table_name
        and f.tgfoid in (select v.function from pgevict.watch_functions() v))
  ),
  tree as (
    select t.target, t.target as member, false as pending from targets t
    union
    select r.target, i.inhrelid, i.inhdetachpending from tree r join pg_inherits i on i.inhparent = r.member
  ),
  members as (
    select r.target,
      string_agg(concat_ws(' ', r.member, c.relkind, c.relfilenode, r.pending), ',' order by r.member) as line,
      array_agg(r.member order by r.member) filter (where r.member <> r.target) as parts
    from tree r join pg_class c on c.oid = r.member
    group by r.target
  ),
  triggers as (
    select r.target, string_agg(f.line, ',' order by f.line collate "C") as line,
      string_agg(distinct f.made, ',') as made
    from tree r join fired f on f.tgrelid = r.member
    group by r.target
  ),
  columns as (
    select t.target, string_agg(
      concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation, a.attgenerated::text,
        a.attisdropped), ',' order by a.attnum) as line
    from targets t join pg_attribute a on a.attrelid = t.target and a.attnum > 0
    group by t.target
  )
  select t.target, f.fingerprint, concat_ws(' ', f.fingerprint, g.made, m.functions_checksum), coalesce(r.parts, '{}')
  from targets t
    left join members r on r.target = t.target
    left join triggers g on g.target = t.target
    left join columns c on c.target = t.target
    cross join lateral (
      select case when r.line is null then '' else md5(concat_ws(';', r.line, g.line, c.line)) end as fingerprint
    ) f
    left join pgevict.meta m on m.one
$$;
