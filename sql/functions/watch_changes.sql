-- pgevict.watch_changes(definition jsonb, target oid, op text) returns text
--
-- SQL that renders what one statement changed as one event per row, for a watch with `changes`, to be run over the
-- transition tables of its trigger. It gives one row:
--   act      'nothing' no row changed; 'told' what follows are the events; 'heads' more rows changed than
--            escalate_above; 'many' old and new rows cannot be paired, so that nobody can say what changed in which
--   stale pgevict.stale[], verbs text[], ids text[], changes jsonb[]   of each event, in one order
--
-- verb     created, updated or deleted. An UPDATE pairs old and new rows by the columns that were the primary key at the
--          time of watch(); a row whose key changed was deleted and another one created. Without a primary key an UPDATE
--          of one row is paired all the same.
-- id       canonical text (text_of()) of the primary key; of several columns: each escaped as in keys, joined by ':'
-- changes  {"column": {"old": ..., "new": ...}} for each shown column in which the two versions differ, as watch_same()
--          tells them apart; a version that is not there is all NULL. smallint and integer are numbers, boolean is true
--          or false, all else is its canonical text, json and jsonb too: bigint, numeric and float8 would lose digits at
--          readers, jsonb cannot hold the U+0000 that json can.
--          NULL when what changed in the row comes to over 64 KiB, or in the statement to over 16 MiB.
--
-- Sizes are asked before anything is printed. octet_length() may be a cast of the user's when the column's type is not
-- the one it was, and so may what pairs rows (watch_key()), so that whoever runs this has to check watch_types() in a statement before. Names are quoted by %I,
-- texts by %L. A full join is never a loop over both tables, so the plan may be kept. Writes nothing.
create or replace function pgevict.watch_changes(definition jsonb, target oid, op text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  -- Alias of the version of a row, where there is only one.
  side constant text := case op when 'INSERT' then 'n' when 'DELETE' then 'o' end;
  source text := case op when 'INSERT' then 'pgevict_new n' when 'DELETE' then 'pgevict_old o' else 'pgevict_old o, pgevict_new n' end;
  old_there text := case op when 'INSERT' then 'false' else 'true' end;
  new_there text := case op when 'DELETE' then 'false' else 'true' end;
  pairable text := case op when 'UPDATE' then '(select count(*) from (select from pgevict_new limit 2) r) = 1' else 'true' end;
  identity record;
  id text;
  kind text;
  old_texts text;
  new_texts text;
  stale text[] := '{}';
  differ text;
  sizes text;
  kept text;
  shown text;
  over text := 'false';
begin
  select count(*) as columns,
    string_agg(format('num_nulls(o.%I) = 0', a.attname), ' and ') as old_there,
    string_agg(format('num_nulls(n.%I) = 0', a.attname), ' and ') as new_there,
    case count(*) when 1 then min(t.o) else string_agg(format('pgevict.escape(%s)', t.o), ' || '':'' || ' order by c.n) end as o,
    case count(*) when 1 then min(t.n) else string_agg(format('pgevict.escape(%s)', t.n), ' || '':'' || ' order by c.n) end as n
  into identity
  from jsonb_array_elements_text(coalesce(nullif(definition -> 'identity', 'null'), '[]')) with ordinality c (name, n)
    join pg_attribute a on a.attrelid = target and a.attname = c.name and a.attnum > 0 and not a.attisdropped,
    lateral (select pgevict.text_of(format('o.%I', a.attname), a.atttypid),
      pgevict.text_of(format('n.%I', a.attname), a.atttypid)) t (o, n);

  if op = 'UPDATE' and identity.columns > 0 then
    -- A version that is not there is all NULL, and pairable rows have none in their key.
    old_there := identity.old_there;
    new_there := identity.new_there;
    source := format('pgevict_old o full join pgevict_new n on %s = %s', pgevict.watch_key(definition, target, 'o'),
      pgevict.watch_key(definition, target, 'n'));
    pairable := pgevict.watch_pairable(definition, target);
  end if;

  id := case
    when identity.columns = 0 then 'null::text'
    when side = 'n' then identity.n
    when side = 'o' then identity.o
    else format('case when %s then %s else %s end', new_there, identity.n, identity.o) end;
  foreach kind in array array['key', 'tags', 'prefixes'] loop
    old_texts := array_to_string(pgevict.watch_texts(definition, target, kind, coalesce(side, 'o')), ', ');
    new_texts := array_to_string(pgevict.watch_texts(definition, target, kind, coalesce(side, 'n')), ', ');
    stale := stale || case
      when old_texts = '' then '''{}''::text[]'
      when side is not null then format('array[%s]', new_texts)
      else format('case when not (%s) then array[%s] when not (%s) then array[%s] else pgevict.pairs(array[%4$s], array[%2$s]) end',
        old_there, new_texts, new_there, old_texts) end;
  end loop;

  -- Of each shown column: whether its versions differ, c1 and so on; their size; both values, o1 and n1, unless the row
  -- is too large; the field of `changes`.
  select
    coalesce(string_agg(format('%s as c%s', case op
        when 'INSERT' then format('num_nulls(n.%I) = 0', a.attname)
        when 'DELETE' then format('num_nulls(o.%I) = 0', a.attname)
        else format('not record_image_eq(row(o.%1$I), row(n.%1$I))%2$s', a.attname,
          case when pgevict.plain_type(a.atttypid) then ''
            else format(' and row(o.%1$I)::text <> row(n.%1$I)::text collate "C"', a.attname) end)
      end, s.n), ', ' order by s.n), ''),
    coalesce(string_agg(format('case when d.c%s then %s else 0 end', s.n, (
        select string_agg(format('coalesce(%s(%s.%I), 0)::bigint', case
            when pgevict.base_of(a.atttypid) = any (array['text', 'varchar', 'bytea']::regtype[]) then 'octet_length'
            else 'pg_column_size' end, v.alias, a.attname), ' + ')
        from unnest(array['o', 'n']) v (alias) where v.alias = coalesce(side, v.alias)
      )), ' + ' order by s.n) filter (where a.attlen = -1), '0'),
    coalesce(string_agg(format(', d.c%s', s.n)
      || case op when 'INSERT' then '' else format(', case when d.c%1$s and s.size <= 65536 then o.%2$I end as o%1$s', s.n, a.attname) end
      || case op when 'DELETE' then '' else format(', case when d.c%1$s and s.size <= 65536 then n.%2$I end as n%1$s', s.n, a.attname) end,
      '' order by s.n), ''),
    coalesce(string_agg(format('case when c%s then %L || %s || '',"new":'' || %s || ''}'' end', s.n,
      to_json(a.attname::text)::text || ':{"old":',
      case op when 'INSERT' then quote_literal('null') else pgevict.json_of('o' || s.n, a.atttypid) end,
      case op when 'DELETE' then quote_literal('null') else pgevict.json_of('n' || s.n, a.atttypid) end),
      ', ' order by s.n), 'null::text')
  into differ, sizes, kept, shown
  from jsonb_array_elements_text(definition -> 'shown') with ordinality s (name, n)
    join pg_attribute a on a.attrelid = target and a.attname = s.name and a.attnum > 0 and not a.attisdropped;

  -- More rows than both versions of all that may be told come to: nothing of them is worked out. Asked only of a statement
  -- that changed more rows than that, since it compares them once more.
  if op = 'UPDATE' then
    over := format(
      'case when (select count(*) from (select from pgevict_new limit %1$s) r) < %1$s then false
         else (select count(*) from (select from %2$s where %3$s and not (%4$s and %5$s and %6$s) limit %1$s) r) = %1$s end',
      (definition ->> 'escalate_above')::bigint * 2 + 1, source, pairable, old_there, new_there,
      pgevict.watch_same(definition, target, 'columns'));
  end if;

  return format(
    'with over as materialized (select %13$s as yes),
     paired as materialized (
       select case when not (%1$s) then ''created'' when not (%2$s) then ''deleted'' else ''updated'' end as verb,
         %3$s as id, row(%4$s)::pgevict.stale as stale, s.size%5$s
       from %6$s, lateral (select %7$s offset 0) d, lateral (select %8$s as size offset 0) s
       where not (select yes from over) and %9$s and not (%1$s and %2$s and %10$s)),
     tally as materialized (
       select greatest(count(*) filter (where verb <> ''created''), count(*) filter (where verb <> ''deleted'')) as rows,
         sum(size) as size
       from paired),
     told as (
       select verb, id, stale,
         case when size <= 65536 and (select size from tally) <= 16777216 then ''{'' || array_to_string(array[%11$s], '','') || ''}'' end
           as changes
       from paired where (select rows from tally) <= %12$s
       offset 0)
     select case when (select yes from over) then ''heads'' when not (%9$s) then ''many'' when (select rows from tally) = 0 then ''nothing''
         when (select rows from tally) > %12$s then ''heads'' else ''told'' end,
       array_agg(stale), array_agg(verb), array_agg(id),
       array_agg(case when octet_length(changes) <= 65536 then changes end::jsonb)
     from told',
    old_there, new_there, id, array_to_string(stale, ', '), kept, source, differ, sizes, pairable,
    case op when 'UPDATE' then pgevict.watch_same(definition, target, 'columns') else 'false' end,
    shown, (definition ->> 'escalate_above')::integer, over);
end
$$;
