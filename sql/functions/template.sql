-- pgevict.template(template, schema_name, table_name) returns (n, literal, field)
--
-- The parts of a watch's template in order: literal text, or the column of a placeholder {column}. {schema} and {table}
-- are literals: the watched table's names at the time of watch(), escaped. A stray brace is a part whose field is the
-- brace itself, which is no column name that a template can hold. Writes nothing.
create or replace function pgevict.template(
  template text, schema_name text, table_name text, out n bigint, out literal text, out field text
) returns setof record
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select p.n,
      case
        when p.part[1] = '{schema}' then pgevict.escape(schema_name)
        when p.part[1] = '{table}' then pgevict.escape(table_name)
        when p.part[2] is null and p.part[1] not in ('{', '}') then p.part[1]
      end,
      case
        when p.part[1] in ('{', '}') then p.part[1]
        when p.part[1] not in ('{schema}', '{table}') then p.part[2]
      end
    from regexp_matches(template collate "C", '([{]([^{}]+)[}]|[^{}]+|[{}])', 'g') with ordinality p (part, n);
end
$$;
