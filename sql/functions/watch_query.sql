-- pgevict.watch_query(definition jsonb, target oid, op text) returns text
--
-- SQL that renders what one statement changed, to be run over the transition tables of its trigger. It gives one row:
-- how many rows changed (0 = nothing of interest); the stale texts as pgevict.stale[], one element for each 1,000 rows,
-- or NULL when more rows changed than escalate_above; whether the columns are as they were (watch_placed(),
-- watch_types()).
-- $1 is the number of the table.
--
-- INSERT and DELETE count every row. UPDATE pairs old and new rows by the columns that were the primary key at the time
-- of watch() and leaves out pairs that agree (watch_same()). Whether these columns still tell the rows apart is seen
-- from the rows themselves; if they do not, and without a primary key, every row counts. Old and new versions are
-- numbered apart but in the same order, so that both versions of up to 1,000 rows land in one event.
--
-- Nothing is cast to jsonb, which cannot hold U+0000, nor to anything else (text_of()). Names are quoted by %I, texts
-- by %L. Writes nothing.
create or replace function pgevict.watch_query(definition jsonb, target oid, op text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  fields text;
  identity text[];
  versions text;
  gathered text[] := '{}';
  kind text;
begin
  -- The columns that templates name, as canonical text f1, f2 and so on. Never by attribute number: a restored table
  -- has others, and its SQL has to be the same.
  select string_agg(format('%s as f%s', pgevict.text_of('r.' || quote_ident(a.attname), a.atttypid), f.n), ', '
      order by f.n)
  into fields
  from jsonb_array_elements_text(definition -> 'fields') with ordinality f (name, n)
    join pg_attribute a on a.attrelid = target and a.attname = f.name and a.attnum > 0 and not a.attisdropped;
  fields := coalesce(fields, '1');

  -- The primary key of the old, the new and any row, as one text.
  if op = 'UPDATE' then
    select array_agg(k.id order by k.n) into identity
    from (
      select s.n, 'row(' || string_agg(s.row || '.' || quote_ident(c.name), ', ' order by c.n) || ')::text collate "C"' as id
      from unnest(array['o', 'n', 'r']) with ordinality s (row, n),
        jsonb_array_elements_text(coalesce(nullif(definition -> 'identity', 'null'), '[]')) with ordinality c (name, n)
      group by s.n
    ) k;
  end if;

  if identity is null then
    versions := format('changed as (%s)', case op
      when 'INSERT' then format('select 1 as side, 1 as id, %s from pgevict_new r', fields)
      when 'DELETE' then format('select 0 as side, 1 as id, %s from pgevict_old r', fields)
      else format('select 0 as side, 1 as id, %1$s from pgevict_old r
                   union all select 1, 1, %1$s from pgevict_new r', fields)
    end);
  else
    versions := format(
      'same as (
         select %1$s as id from pgevict_old o join pgevict_new n on %1$s = %2$s
         where %3$s
           and not exists (select from pgevict_old o group by %1$s having count(*) > 1)
           and not exists (select from pgevict_new n group by %2$s having count(*) > 1)),
       changed as (
         select 0 as side, %4$s as id, %5$s from pgevict_old r where not exists (select from same where same.id = %4$s)
         union all
         select 1, %4$s, %5$s from pgevict_new r where not exists (select from same where same.id = %4$s))',
      identity[1], identity[2], pgevict.watch_same(definition, target, 'columns'), identity[3], fields);
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
     tally as (select coalesce(max(c), 0) as rows from (select count(*) as c from changed group by side) s)
     select (select rows from tally), (
         select array_agg(stale order by n)
         from (
           select n, row(%s, %s, %s)::pgevict.stale as stale
           from (select (row_number() over (partition by side order by id) - 1) / 1000 as n, * from changed) numbered
           where (select rows from tally) <= %s
           group by n
         ) chunks
       ),
       (select %s and %s from %s r limit 1)',
    versions, gathered[1], gathered[2], gathered[3], (definition ->> 'escalate_above')::integer,
    pgevict.watch_placed(definition, '$1'), pgevict.watch_types(definition, target, 'r'), case op when 'DELETE' then 'pgevict_old' else 'pgevict_new' end);
end
$$;
