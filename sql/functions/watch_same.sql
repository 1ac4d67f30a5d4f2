-- pgevict.watch_same(definition jsonb, target oid, what text) returns text
--
-- SQL for a condition: the old row o and the new row n agree in
--   columns  all effective columns: `columns` and those of all templates; all columns, later ones too, when `columns`
--            is null
--   fields   the columns that templates name: then the texts of both rows are the same
-- Writes nothing.
--
-- Rows agree when their bytes do: json has no equality, and an operator of the user's must not run with the owner's
-- rights. Catalogue types print two values alike only if their bytes are alike, so that printing them would tell
-- nothing more; for others (composites, types of extensions) effective columns of different bytes are compared as
-- printed.
create or replace function pgevict.watch_same(definition jsonb, target oid, what text) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
      when count(*) = 0 then 'true'
      when what = 'fields' or bool_and(pgevict.plain_type(a.atttypid)) then format('record_image_eq(%s, %s)', r.o, r.n)
      else format('(record_image_eq(%1$s, %2$s) or (%1$s)::text = (%2$s)::text collate "C")', r.o, r.n)
    end
  from (
      select case when what = 'columns' and definition -> 'columns' = 'null' then 'o.*'
          else 'row(' || string_agg('o.' || quote_ident(c.name), ', ' order by c.name collate "C") || ')' end as o,
        case when what = 'columns' and definition -> 'columns' = 'null' then 'n.*'
          else 'row(' || string_agg('n.' || quote_ident(c.name), ', ' order by c.name collate "C") || ')' end as n
      from (
        select jsonb_array_elements_text(definition -> 'fields') as name
        union
        select jsonb_array_elements_text(definition -> 'columns')
        where what = 'columns' and definition -> 'columns' <> 'null'
      ) c
    ) r
    left join pg_attribute a on a.attrelid = target and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
      and (definition -> 'fields' ? a.attname
        or (what = 'columns' and (definition -> 'columns' = 'null' or definition -> 'columns' ? a.attname)))
  where r.o is not null
  group by r.o, r.n
$$;
