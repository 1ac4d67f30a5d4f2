-- pgevict.watch_query(definition jsonb, target oid, op text) returns text
--
-- SQL that renders what one statement changed, to be run over the transition tables of its trigger. It gives one row:
-- how many rows changed (0 = nothing of interest); the stale texts as pgevict.stale[], one element for each 1,000 rows,
-- or NULL when more rows changed than escalate_above.
--
-- INSERT and DELETE count every row. UPDATE pairs old and new rows by the columns that were the primary key at the time
-- of watch() and leaves out pairs that agree (watch_same()). Whether these columns still tell the rows apart is seen
-- from the rows themselves; if they do not, and without a primary key, every row counts. Old and new versions are
-- numbered apart, and those of one row alike, so that both versions of up to 1,000 rows land in one event. An old
-- version whose texts are those of the new one is not rendered.
--
-- To be run only after watch_key_types() was checked in a statement of its own. Nothing is cast to jsonb,
-- which cannot hold U+0000, nor to anything else (text_of()). Names are quoted by %I, texts by %L. Writes nothing.
create or replace function pgevict.watch_query(definition jsonb, target oid, op text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  pairable constant text := case op when 'UPDATE' then pgevict.watch_pairable(definition, target) end;
  fields record;
  there record;
  every_old text;
  every_new text;
  versions text;
  changed text;
  gathered text[] := '{}';
  kind text;
begin
  -- The columns that templates name, as canonical text f1, f2 and so on; of pairs first as they are, o1 and n1. Never by
  -- attribute number: a restored table has others, and its SQL has to be the same.
  select
    coalesce(string_agg(format(', %s as f%s', pgevict.text_of('r.' || quote_ident(a.attname), a.atttypid), f.n), '' order by f.n),
      '') as of_row,
    coalesce(string_agg(format(', o.%1$I as o%2$s, n.%1$I as n%2$s', a.attname, f.n), '' order by f.n), '') as of_pair,
    coalesce(string_agg(format(', %s as f%s', pgevict.text_of('o' || f.n, a.atttypid), f.n), '' order by f.n), '') as of_old,
    coalesce(string_agg(format(', %s as f%s', pgevict.text_of('n' || f.n, a.atttypid), f.n), '' order by f.n), '') as of_new
  into fields
  from jsonb_array_elements_text(definition -> 'fields') with ordinality f (name, n)
    join pg_attribute a on a.attrelid = target and a.attname = f.name and a.attnum > 0 and not a.attisdropped;

  every_old := format('select (row_number() over () - 1) / 1000 as n%s from pgevict_old r', fields.of_row);
  every_new := format('select (row_number() over () - 1) / 1000 as n%s from pgevict_new r', fields.of_row);
  versions := format('versions as (%s)', case op when 'INSERT' then every_new when 'DELETE' then every_old
    else every_old || ' union all ' || every_new end);
  changed := format('select count(*) from %s', case op when 'DELETE' then 'pgevict_old' else 'pgevict_new' end);
  if pairable is not null then
    select string_agg(format('num_nulls(o.%I) = 0', c.name), ' and ') as o,
      string_agg(format('num_nulls(n.%I) = 0', c.name), ' and ') as n
    into there
    from jsonb_array_elements_text(definition -> 'identity') c (name);
    versions := format(
      'usable as materialized (select %1$s as ok),
       paired as materialized (
         select %2$s as old_there, %3$s as new_there, not (%2$s and %3$s and %4$s) as differ%5$s,
           (count(*) filter (where %3$s) over (rows unbounded preceding) - 1) / 1000 as new_n,
           (count(*) filter (where not (%3$s)) over (rows unbounded preceding) - 1) / 1000 as old_n
         from pgevict_old o full join pgevict_new n on %6$s = %7$s
         where (select ok from usable) and not (%2$s and %3$s and %8$s)),
       versions as (
         select case when new_there then new_n else old_n end as n%9$s from paired where old_there and differ
         union all
         select new_n%10$s from paired where new_there
         union all
         (%11$s where not (select ok from usable))
         union all
         (%12$s where not (select ok from usable)))',
      pairable, there.o, there.n, coalesce(pgevict.watch_same(definition, target, 'fields'), 'true'), fields.of_pair,
      pgevict.watch_key(definition, target, 'o'), pgevict.watch_key(definition, target, 'n'),
      pgevict.watch_same(definition, target, 'columns'), fields.of_old, fields.of_new, every_old, every_new);
    changed := format('select case when (select ok from usable) then
           greatest(count(*) filter (where old_there), count(*) filter (where new_there)) else (%s) end from paired', changed);
  end if;

  -- Each template's texts, gathered without repeats.
  foreach kind in array array['key', 'tags', 'prefixes'] loop
    gathered := gathered || (
      select coalesce(string_agg('array_agg(distinct (' || t.expression || ') collate "C")', ' || ' order by t.n),
        '''{}''::text[]')
      from unnest(pgevict.watch_texts(definition, target, kind, null)) with ordinality t (expression, n));
  end loop;

  return format(
    'with %s,
     tally (rows) as materialized (%s)
     select (select rows from tally), (
         select array_agg(stale order by n)
         from (
           select n, row(%s, %s, %s)::pgevict.stale as stale
           from versions
           where (select rows from tally) <= %s
           group by n
         ) chunks
       )',
    versions, changed, gathered[1], gathered[2], gathered[3], (definition ->> 'escalate_above')::integer);
end
$$;
