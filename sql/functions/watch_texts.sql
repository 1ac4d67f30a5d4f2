-- pgevict.watch_texts(definition jsonb, target oid, kind text, source text) returns text[]
--
-- SQL for the text of each template of one kind (key, tags, prefixes) of a watch, in order.
--
-- source  what the columns are read from: an alias of a row of the table, or NULL: then f1, f2 and so on, by their
--         place in `fields`, stand for their canonical texts (text_of())
--
-- A template is one concat() of its parts: each function in an expression costs every statement on the table its
-- setting up. A column whose canonical text is what is printed, and needs no escaping, is left to that concat() too.
--
-- Names are quoted by %I, texts by %L: a definition is data, whoever made it. Writes nothing.
create or replace function pgevict.watch_texts(definition jsonb, target oid, kind text, source text) returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with templates as (
    select 1 as n, definition ->> 'key' as template where kind = 'key'
    union all
    select e.n, e.template
    from jsonb_array_elements_text(case kind when 'key' then '[]' else definition -> kind end)
      with ordinality e (template, n)
  ),
  parts as (
    select t.n as template, p.n, p.literal, p.field, a.atttypid as type, pgevict.base_of(a.atttypid) as base,
      case
        when source is null then 'f' || (
          select f.n from jsonb_array_elements_text(definition -> 'fields') with ordinality f (name, n)
          where f.name = p.field)
        else format('%s.%I', source, a.attname)
      end as value
    from templates t,
      pgevict.template(t.template, definition ->> 'schema', definition ->> 'table') p
      left join pg_attribute a on a.attrelid = target and a.attname = p.field and a.attnum > 0 and not a.attisdropped
    where t.template is not null
  ),
  pieces as (
    select p.template, p.n, p.field,
      case when p.field is null then quote_literal(p.literal) else p.value end as printed,
      case when p.field is null then quote_literal(p.literal) else quote_literal('%N') end as missing,
      case
        when p.field is null then quote_literal(p.literal)
        when p.base = any (array['int2', 'int4', 'int8', 'uuid', 'bool']::regtype[]) then format('coalesce(%s, ''%%N'')', c.canonical)
        else format('coalesce(pgevict.escape(%s), ''%%N'')', c.canonical)
      end as canonical,
      p.field is not null and p.value is not null and source is not null
        and p.type = any (array['int2', 'int4', 'int8', 'uuid']::regtype[]) as plain
    from parts p,
      lateral (select case
        when p.field is null then null when source is null then p.value else pgevict.text_of(p.value, p.type) end) c (canonical)
  )
  select coalesce(array_agg(x.expression order by x.template), '{}')
  from (
    select p.template,
      case
        when count(p.field) = 0 then string_agg(p.canonical, ' || ' order by p.n) || '::text'
        when count(p.field) = 1 and bool_or(p.plain)
          then format('case when %s is null then %s else concat(%s) end', max(p.printed) filter (where p.field is not null),
            string_agg(p.missing, ' || ' order by p.n), string_agg(p.printed, ', ' order by p.n))
        else format('concat(%s)', string_agg(p.canonical, ', ' order by p.n))
      end as expression
    from pieces p
    group by p.template
  ) x
$$;
