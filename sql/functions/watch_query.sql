-- pgevict.watch_query(definition jsonb, target oid, op text) returns text
--
-- SQL that renders what one statement changed, to be run by the trigger function over its transition tables. It gives
-- one row: how many rows changed (0 = nothing of interest), and the stale texts as pgevict.stale[], one element for
-- each 1,000 rows; the latter is NULL when more rows changed than escalate_above.
--
-- NULL when the watch has drifted: a column it names is gone, has another name, another number (on the very table that
-- was watched; a restored table has other numbers and is taken by name), or is virtual.
--
-- INSERT and DELETE count every row. UPDATE pairs old and new rows by primary key and leaves out pairs whose effective
-- columns (`columns` and those of all templates; all columns when `columns` is null) print the same; without a primary
-- key every row counts. Old and new versions are numbered apart but in the same order, so that both versions of up to
-- 1,000 rows land in one event.
--
-- Values are the same when their bytes are, or else when their output functions print the same: json has no equality, and
-- an operator of the user's must not run with the owner's rights. Bytes first, so that a large value that did not change
-- is not printed. Nothing is ever cast to jsonb, which cannot hold U+0000. Names are quoted by %I, texts
-- by %L. Writes nothing.
create or replace function pgevict.watch_query(definition jsonb, target oid, op text) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  same text;
  identity text;
  identity_o text;
  identity_n text;
  fields text;
  keys text;
  tags text;
  prefixes text;
  templates text[];
  rendered text[] := '{}';
  versions text;
begin
  if exists (
    select from jsonb_each_text(definition -> 'attributes') w (name, number)
    where not exists (
      select from pg_attribute a
      where a.attrelid = target and a.attname = w.name and a.attnum > 0 and not a.attisdropped
        and a.attgenerated <> 'v'
        and (target <> (definition ->> 'relation')::oid or a.attnum = w.number::integer))
  ) then
    return null;
  end if;

  -- The columns that templates name, as canonical text f1, f2 and so on, by attribute number.
  select string_agg(format('%s as f%s', pgevict.text_of('r.' || quote_ident(a.attname), a.atttypid), a.attnum), ', '
      order by a.attnum)
  into fields
  from pg_attribute a
  where a.attrelid = target and a.attnum > 0 and not a.attisdropped and definition -> 'fields' ? a.attname;

  -- Each template as an expression over f1, f2 and so on, gathered without repeats.
  select array_agg(t.template order by t.n) into templates
  from (
    select 1 as n, definition ->> 'key' as template where definition ->> 'key' is not null
    union all
    select 1000 + n, e from jsonb_array_elements_text(definition -> 'tags') with ordinality t (e, n)
    union all
    select 2000000 + n, e from jsonb_array_elements_text(definition -> 'prefixes') with ordinality t (e, n)
  ) t;
  select array_agg('array_agg(distinct (' || x.expression || ') collate "C")' order by x.n) into rendered
  from (
    select t.n,
      string_agg(
        case
          when p.field is null then quote_literal(p.literal) || '::text'
          when a.atttypid = any (array['int2', 'int4', 'int8', 'uuid', 'bool']::regtype[])
            then format('coalesce(f%s, ''%%N'')', a.attnum)
          else format('coalesce(pgevict.escape(f%s), ''%%N'')', a.attnum)
        end, ' || ' order by p.n) as expression
    from unnest(templates) with ordinality t (template, n),
      pgevict.template(t.template, definition ->> 'schema', definition ->> 'table') p
      left join pg_attribute a on a.attrelid = target and a.attname = p.field and not a.attisdropped
    group by t.n
  ) x;
  keys := case when definition ->> 'key' is null then '''{}''::text[]' else rendered[1] end;
  if definition ->> 'key' is not null then
    rendered := rendered[2:];
  end if;
  tags := coalesce(array_to_string(rendered[1 : jsonb_array_length(definition -> 'tags')], ' || '), '');
  prefixes := coalesce(array_to_string(rendered[jsonb_array_length(definition -> 'tags') + 1 :], ' || '), '');
  tags := coalesce(nullif(tags, ''), '''{}''::text[]');
  prefixes := coalesce(nullif(prefixes, ''), '''{}''::text[]');

  if op = 'UPDATE' then
    select string_agg(
      format('(row(o.%1$I)::record *= row(n.%1$I)::record or row(o.%1$I)::text = row(n.%1$I)::text collate "C")', a.attname),
      ' and ' order by a.attnum)
    into same
    from pg_attribute a
    where a.attrelid = target and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
      and (definition -> 'columns' = 'null' or definition -> 'attributes' ? a.attname);
    select 'row(' || string_agg('o.' || quote_ident(a.attname), ', ' order by a.attnum) || ')::text collate "C"',
      'row(' || string_agg('n.' || quote_ident(a.attname), ', ' order by a.attnum) || ')::text collate "C"',
      'row(' || string_agg('r.' || quote_ident(a.attname), ', ' order by a.attnum) || ')::text collate "C"'
    into identity_o, identity_n, identity
    from pg_index i
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indrelid = target and i.indisprimary;
  end if;

  if identity is null then
    versions := case op
      when 'INSERT' then format('select 1 as side, 1 as id, %s from pgevict_new r', coalesce(fields, '1'))
      when 'DELETE' then format('select 0 as side, 1 as id, %s from pgevict_old r', coalesce(fields, '1'))
      else format('select 0 as side, 1 as id, %1$s from pgevict_old r
                   union all select 1, 1, %1$s from pgevict_new r', coalesce(fields, '1'))
    end;
    versions := format('changed as (%s)', versions);
  else
    versions := format(
      'same as (
         select %1$s as id from pgevict_old o join pgevict_new n on %1$s = %2$s where %3$s),
       changed as (
         select 0 as side, %4$s as id, %5$s from pgevict_old r where not exists (select from same where same.id = %4$s)
         union all
         select 1, %4$s, %5$s from pgevict_new r where not exists (select from same where same.id = %4$s))',
      identity_o, identity_n, coalesce(same, 'true'), identity, coalesce(fields, '1'));
  end if;

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
       ) chunks)',
    versions, keys, tags, prefixes, (definition ->> 'escalate_above')::integer);
end
$$;
