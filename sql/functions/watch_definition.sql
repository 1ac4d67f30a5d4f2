-- pgevict.watch_definition(target, key, tags, prefixes, columns, changes, escalate_above, fire_on_replica, flush_ok)
-- returns jsonb
--
-- Checks what watch() was given and returns the definition that its triggers carry:
--   v 1, relation (oid), schema, table (names at this time, for {schema} and {table}, type and entity_type), key, tags,
--   prefixes (templates), columns (or null), fields (columns that templates name), identity (columns of the primary
--   key, or null), attributes (name: number of every column named in one of these), escalate_above, flush_ok; with
--   changes: changes (true), shown (columns that appear in `changes`: those that count, as they are now); and
--   fire_on_replica if it is true.
-- Every refusal (22023 what is wrong with an argument, 0A000 what is not supported) names the argument and the cure.
-- Writes nothing.
create or replace function pgevict.watch_definition(
  target regclass,
  key text,
  tags text[],
  prefixes text[],
  columns text[],
  changes boolean,
  escalate_above integer,
  fire_on_replica boolean,
  flush_ok boolean
) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  rel record;
  part record;
  col record;
  argument text;
  template text;
  between_fields text;
  fields text[] := '{}';
  every_column text;
  wanted text;
  kind text;
  identity text[];
  shown text[];
begin
  tags := coalesce(tags, '{}');
  prefixes := coalesce(prefixes, '{}');
  flush_ok := coalesce(flush_ok, false);

  select c.oid, c.relname, c.relkind, c.relpersistence, c.relispartition, n.nspname,
    (select i.inhparent::regclass from pg_inherits i where i.inhrelid = c.oid limit 1) as parent,
    (select i.inhrelid::regclass from pg_inherits i where i.inhparent = c.oid limit 1) as child,
    (select p.relid from pg_partition_tree(c.oid) p join pg_class l on l.oid = p.relid where l.relkind = 'f' limit 1) as foreign_part
  into rel
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.oid = target;
  if not found then
    raise exception 'watch: table % does not exist', coalesce(target::text, 'NULL')
      using errcode = 'undefined_table', hint = 'Check the name and the schema.';
  end if;
  if rel.nspname = 'pgevict' then
    raise exception 'watch: % is a table of pgevict itself, whose events would cause events', target
      using errcode = 'invalid_parameter_value';
  end if;
  if rel.nspname in ('pg_catalog', 'information_schema', 'pg_toast') then
    raise exception 'watch: % is a system table', target using errcode = 'invalid_parameter_value';
  end if;
  kind := case rel.relkind
    when 'v' then 'a view: watch the tables it reads'
    when 'm' then 'a materialized view: call pgevict.emit() after REFRESH'
    when 'f' then 'a foreign table: its rows change elsewhere'
    when 'i' then 'an index' when 'I' then 'an index' when 'S' then 'a sequence' when 'c' then 'a type' end;
  if kind is not null then
    raise exception 'watch: % is %', target, kind using errcode = 'feature_not_supported';
  end if;
  if changes and (rel.relkind = 'p' or rel.relispartition or fire_on_replica) then
    raise exception 'watch: changes => true %, whose rows are told one by one, is not supported',
        case when fire_on_replica then 'with fire_on_replica => true' when rel.relkind = 'p' then 'on a partitioned table'
          else 'on a partition' end
      using errcode = 'feature_not_supported', hint = 'Leave it out, or emit the event with its changes yourself.';
  end if;
  if rel.relispartition then
    raise exception 'watch: % is a partition of %', target, rel.parent
      using errcode = 'feature_not_supported',
            hint = format('Watch %s: that tells of what is written to its partitions directly, too.',
              coalesce(pg_partition_root(target), rel.parent));
  end if;
  if rel.foreign_part is not null then
    raise exception 'watch: % has the partition %, a foreign table: its rows change elsewhere', target, rel.foreign_part
      using errcode = 'feature_not_supported', hint = 'Call pgevict.emit() where it is written.';
  end if;
  if rel.relkind <> 'p' and (rel.parent is not null or rel.child is not null) then
    raise exception 'watch: % %', target,
        coalesce('inherits from ' || rel.parent, 'is inherited from by ' || rel.child)
        || ', and a statement fires the triggers of the table that it names only'
      using errcode = 'feature_not_supported',
            hint = 'Use partitions (PARTITION BY) instead of INHERITS, or call pgevict.emit() where it is written.';
  end if;
  if rel.relpersistence = 't' then
    raise exception 'watch: % is a temporary table, which no other session can read', target
      using errcode = 'invalid_parameter_value';
  end if;
  if escalate_above is null or escalate_above not between 0 and 1000000 then
    raise exception 'watch: escalate_above is %, not a number of rows from 0 to 1000000',
        coalesce(escalate_above::text, 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'The default is 1000.';
  end if;
  if key is null and cardinality(tags) = 0 and cardinality(prefixes) = 0 then
    raise exception 'watch: no key, no tag and no prefix: the watch would say nothing'
      using errcode = 'invalid_parameter_value', hint = 'Give a template such as key => ''product:{id}''.';
  end if;
  if cardinality(tags) + cardinality(prefixes) > 99 then
    raise exception 'watch: % tags and prefixes, over the limit of 99', cardinality(tags) + cardinality(prefixes)
      using errcode = 'invalid_parameter_value', hint = 'Every row would carry as many. Use broader ones.';
  end if;
  if array_ndims(tags) > 1 or array_ndims(prefixes) > 1 or array_ndims(columns) > 1 then
    raise exception 'watch: tags, prefixes and columns are plain lists' using errcode = 'invalid_parameter_value';
  end if;

  select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into every_column
  from pg_attribute a where a.attrelid = target and a.attnum > 0 and not a.attisdropped;

  for argument, template in
    select 'key', key where key is not null
    union all select 'tags', t from unnest(tags) t
    union all select 'prefixes', p from unnest(prefixes) p
  loop
    if coalesce(template, '') = '' then
      raise exception 'watch: % holds an empty template', argument
        using errcode = 'invalid_parameter_value', hint = 'Leave it out or give a text such as product:{id}.';
    end if;
    if octet_length(template) > 1048576 then
      raise exception 'watch: % holds a template of % bytes, over the limit of 1048576 bytes (1 MiB)', argument,
          octet_length(template)
        using errcode = 'invalid_parameter_value', hint = 'Shorten it.';
    end if;
    if pgevict.template_head(template, rel.nspname, rel.relname) = '' and not flush_ok then
      raise exception 'watch: % template % begins with a placeholder, so that a TRUNCATE or a large change would have to empty every cache',
          argument, quote_literal(template)
        using errcode = 'invalid_parameter_value',
              hint = format('Begin it with a fixed text such as %s:, or allow that by flush_ok => true.', rel.relname);
    end if;
    if exists (
      select from pg_attribute a
      where a.attrelid = target and a.attnum > 0 and not a.attisdropped
        and a.attname in ('schema', 'table') and strpos(template, '{' || a.attname || '}') > 0)
    then
      raise exception 'watch: % template % is ambiguous: {schema} and {table} mean the names of the table, which has a column of that name too',
          argument, quote_literal(template)
        using errcode = 'invalid_parameter_value', hint = 'Write the names of the table as plain text.';
    end if;
    between_fields := null;
    for part in select * from pgevict.template(template, rel.nspname, rel.relname) order by n loop
      if part.field is null then
        between_fields := between_fields || part.literal;
        continue;
      end if;
      if part.field in ('{', '}') then
        raise exception 'watch: % template % has a brace that belongs to no placeholder', argument, quote_literal(template)
          using errcode = 'invalid_parameter_value', hint = 'Write placeholders as {column}, {schema} or {table}.';
      end if;
      select a.attname, a.attgenerated, o.collisdeterministic,
        format_type(a.atttypid, a.atttypmod) as type_name, pgevict.texts_differ(a.atttypid) as at_fault
      into col
      from pg_attribute a left join pg_collation o on o.oid = a.attcollation
      where a.attrelid = target and a.attname = part.field and a.attnum > 0 and not a.attisdropped;
      if not found then
        raise exception 'watch: % template % names the column %, which % does not have', argument,
            quote_literal(template), quote_ident(part.field), target
          using errcode = 'undefined_column', hint = format('Its columns: %s.', every_column);
      end if;
      if col.attgenerated = 'v' then
        raise exception 'watch: % template % names the column %, a virtual generated column, which triggers cannot see',
            argument, quote_literal(template), quote_ident(part.field)
          using errcode = 'feature_not_supported', hint = 'Make it STORED or use the columns it is computed from.';
      end if;
      if col.at_fault is not null or col.collisdeterministic = false then
        raise exception 'watch: % template % names the column % of type %, where different texts are equal', argument,
            quote_literal(template), quote_ident(part.field), col.type_name || case
              when col.at_fault <> col.type_name then format(' (%s inside)', col.at_fault) else '' end
          using errcode = 'feature_not_supported',
                hint = 'One value could have several keys. Use a column of one plain value with a deterministic collation, such as lower(...) stored.';
      end if;
      if between_fields is not null and between_fields ~ '^[A-Za-z0-9._~%-]*$' then
        raise exception 'watch: % template % has nothing but letters, digits, - . _ ~ or %% before {%}, so that two rows could share a text',
            argument, quote_literal(template), part.field
          using errcode = 'invalid_parameter_value', hint = 'Put a separator such as : between two placeholders.';
      end if;
      between_fields := '';
      fields := fields || part.field;
    end loop;
  end loop;

  if cardinality(columns) = 0 then
    raise exception 'watch: columns is an empty list' using errcode = 'invalid_parameter_value',
      hint = 'Leave it out to watch every column.';
  end if;
  foreach wanted in array coalesce(columns, '{}') loop
    select a.attgenerated into col
    from pg_attribute a
    where a.attrelid = target and a.attname = wanted and a.attnum > 0 and not a.attisdropped;
    if not found then
      raise exception 'watch: columns names %, which % does not have', coalesce(quote_ident(wanted), 'NULL'), target
        using errcode = 'undefined_column', hint = format('Its columns: %s.', every_column);
    end if;
    if col.attgenerated = 'v' then
      raise exception 'watch: columns names %, a virtual generated column, which triggers cannot see', quote_ident(wanted)
        using errcode = 'feature_not_supported', hint = 'Name the columns it is computed from.';
    end if;
  end loop;

  select array_agg(a.attname::text order by array_position(i.indkey::smallint[], a.attnum)) into identity
  from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey[0 : i.indnkeyatts - 1])
  where i.indrelid = target and i.indisprimary;

  if changes then
    select array_agg(a.attname::text order by a.attnum) into shown
    from pg_attribute a
    where a.attrelid = target and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
      and (columns is null or a.attname = any (columns) or a.attname = any (fields));
    if cardinality(shown) > 500 then
      raise exception 'watch: changes => true would show % columns, over the limit of 500', cardinality(shown)
        using errcode = 'invalid_parameter_value', hint = 'Name those that matter by columns.';
    end if;
  end if;

  return jsonb_build_object(
    'v', 1,
    'relation', target::oid::bigint,
    'schema', rel.nspname,
    'table', rel.relname,
    'key', key,
    'tags', to_jsonb(tags),
    'prefixes', to_jsonb(prefixes),
    'columns', (select jsonb_agg(distinct c) from unnest(columns) c),
    'fields', (select coalesce(jsonb_agg(distinct f), '[]') from unnest(fields) f),
    'identity', to_jsonb(identity),
    'attributes', (
      select coalesce(jsonb_object_agg(a.attname, a.attnum), '{}')
      from pg_attribute a
      where a.attrelid = target and a.attnum > 0 and not a.attisdropped
        and (a.attname = any (fields) or a.attname = any (columns) or a.attname = any (identity)
          or a.attname = any (shown))),
    'escalate_above', escalate_above,
    'flush_ok', flush_ok)
    -- Only where it is asked for, so that a watch from before is the same still.
    || case when fire_on_replica then '{"fire_on_replica": true}'::jsonb else '{}' end
    || case when changes then jsonb_build_object('changes', true, 'shown', to_jsonb(coalesce(shown, '{}'))) else '{}' end;
end
$$;
