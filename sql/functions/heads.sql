-- pgevict.heads(definition jsonb) returns pgevict.stale
--
-- All that a watch can ever make stale: the literal head of each template as a prefix; a key or tag template without
-- placeholders as itself. An empty head (allowed by flush_ok only) is an empty prefix, which stands for everything; so
-- does a definition without any template, which watch() never makes.
-- Used where rows cannot be named one by one: TRUNCATE, too many rows, drift, watch and unwatch. Writes nothing.
create or replace function pgevict.heads(definition jsonb) returns pgevict.stale
language sql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with templates as (
    select t.kind, h.head,
      exists (select from pgevict.template(t.template, definition ->> 'schema', definition ->> 'table') p
              where p.field is not null) as open
    from (
      select 'key' as kind, definition ->> 'key' as template
      union all select 'tag', jsonb_array_elements_text(definition -> 'tags')
      union all select 'prefix', jsonb_array_elements_text(definition -> 'prefixes')
    ) t,
    pgevict.template_head(t.template, definition ->> 'schema', definition ->> 'table') as h (head)
    where t.template is not null
  )
  select row(
    coalesce(array_agg(distinct head) filter (where kind = 'key' and not open), '{}'),
    coalesce(array_agg(distinct head) filter (where kind = 'tag' and not open), '{}'),
    case
      when count(*) = 0 then array['']
      else coalesce(array_agg(distinct head) filter (where kind = 'prefix' or open), '{}')
    end
  )::pgevict.stale
  from templates
$$;
