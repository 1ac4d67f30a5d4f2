-- pgevict.watch_source(definition jsonb, target oid) returns text
--
-- Body of the trigger function that watch_build() makes for one watch; it runs after each INSERT, UPDATE, DELETE and
-- TRUNCATE statement on the table and writes what it made stale. NULL when the watch has drifted: a column that counts
-- is gone, has another name, another number (on the very table that was watched; a restored table has other numbers and
-- is taken by name), or is virtual. Writes nothing.
--
-- Everything the function needs is in its text. It reads the definition from nowhere: a transaction with an old
-- snapshot would not see a new one. Its text being fixed, PL/pgSQL keeps the plans for the statement that changed one
-- row, which is what most statements do and what has to be cheap. A statement that changed more is rendered by
-- watch_query(), planned each time: a plan made for 2 rows may be ruinous for 20,000.
--
-- What it writes to pgevict.event: nothing when no row changed in a column of interest; one event per 1,000 rows; the
-- heads of all templates (heads()) on TRUNCATE, when more than escalate_above rows changed, on drift, and for texts
-- over the limits. Up to 20,000 updated rows (or escalate_above, if that is more) are compared to find out whether
-- anything changed; beyond that the comparing would hold up the writer, and the heads are emitted unasked.
--
-- It never breaks the user's write. Whatever fails while rendering ends in the heads, which stand in the text ready to
-- be written; the server's log tells the cause. The rendering only reads, so its EXCEPTION block costs no transaction
-- id.
-- The insert stands outside: if an event cannot be written, the write must not go on without it.
--
-- How drift shows: a column that is gone is an error of the plan; one with another name or number is seen by
-- in_place(), once for each plan; another type by watch_types(). A relation named like a transition table could stand
-- for it in a trigger that somebody else puts on his own table: such a one is not read.
--
-- Names are quoted by %I, texts by %L, numbers are numbers: whatever the definition says, it is data.
create or replace function pgevict.watch_source(definition jsonb, target oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  relation constant oid := (definition ->> 'relation')::oid;
  escalate_above constant integer := (definition ->> 'escalate_above')::integer;
  told constant boolean := definition ? 'changes';
  heads constant pgevict.stale := pgevict.heads(definition);
  placed constant text := pgevict.watch_placed(definition, 'tg_relid');
  kind text;
  op text;
  texts text[];
  first integer;
  last integer;
  -- Of all templates in order: SQL for the texts of the old and of the new row, and the variables they go to.
  old_texts text[] := '{}';
  new_texts text[] := '{}';
  old_names text[] := '{}';
  new_names text[] := '{}';
  -- Of the event of one row: its columns and their values; and as pgevict.stale, with the texts from before the change.
  event_columns text := '';
  event_values text := '';
  pairs text[] := '{}';
  -- What its texts have to be for it to be written as it stands.
  fits text := case when escalate_above = 0 then ' and false' else '' end;
  asked text := '';
  rendered text := '';
begin
  if exists (
    select from jsonb_each_text(definition -> 'attributes') w (name, number)
    where not exists (
      select from pg_attribute a
      where a.attrelid = target and a.attname = w.name and a.attnum > 0 and not a.attisdropped
        and a.attgenerated <> 'v'
        and (target <> relation or a.attnum = w.number::integer))
  ) then
    return null;
  end if;

  foreach kind in array array['key', 'tags', 'prefixes'] loop
    texts := pgevict.watch_texts(definition, target, kind, 'o');
    first := cardinality(old_texts) + 1;
    last := cardinality(old_texts) + cardinality(texts);
    old_texts := old_texts || texts;
    new_texts := new_texts || pgevict.watch_texts(definition, target, kind, 'n');
    old_names := old_names || array(select 'v_old_' || n from generate_series(first, last) n);
    new_names := new_names || array(select 'v_new_' || n from generate_series(first, last) n);
    if first > last then
      pairs := pairs || text '''{}''::text[]';
      continue;
    end if;
    event_columns := event_columns || ', ' || case kind when 'key' then 'keys' else kind end;
    event_values := event_values || format(', array[%s]', array_to_string(new_names[first : last], ', '));
    pairs := pairs || format('pgevict.pairs(array[%s], array[%s])',
      array_to_string(old_names[first : last], ', '), array_to_string(new_names[first : last], ', '));
    if kind = 'prefixes' and '' = any (heads.prefixes) then
      fits := fits || format(' and %L <> all (array[%s])', '', array_to_string(new_names[first : last], ', '));
    end if;
  end loop;
  if octet_length(definition::text) > 100000 or exists (
    select from pg_attribute a
    where a.attrelid = target and a.attnum > 0 and not a.attisdropped and definition -> 'fields' ? a.attname
      and a.atttypid <> all (array['int2', 'int4', 'int8', 'uuid', 'bool']::regtype[]))
  then
    fits := fits || format(' and octet_length(concat(%s)) <= 1000000', array_to_string(new_names, ', '));
  end if;

  foreach op in array array['UPDATE', 'INSERT', 'DELETE'] loop
    if told then
      -- An event for each row. Types first, in a statement of their own: the second is not even planned on others.
      asked := asked || format($source$
    %1$s tg_op = %2$L and (pg_my_temp_schema() = 0
        or to_regclass('pgevict_new') is null and to_regclass('pgevict_old') is null) then
      select case when %3$s and %4$s then 'told' else 'heads' end into strict v_act from %5$s r limit 1;
      if v_act = 'told' and (select count(*) from (select from %5$s limit %6$s + 1) r) > %6$s then
        v_act := 'heads';
      elsif v_act = 'told' then
        %7$s
        into v_act, v_chunks, v_verbs, v_ids, v_changes;
        if v_act = 'told'
          and (pgevict.oversized(v_chunks) or octet_length(array_to_string(v_ids, '')) > 16777216) then
          v_act := 'many';
        end if;
      end if;$source$,
        case op when 'UPDATE' then 'if' else 'elsif' end, op, placed,
        pgevict.watch_types(definition, target, 'r'), case op when 'DELETE' then 'pgevict_old' else 'pgevict_new' end,
        case op when 'UPDATE' then greatest(escalate_above, 20000) else escalate_above end,
        pgevict.watch_changes(definition, target, op));
    else
      -- The only row, and what is to be done with it, v_act: 'heads' if a column is not as it was; 'nothing' if it did
      -- not change; 'both' if its texts did; 'event' is what most changes come to.
      asked := asked || format($source$
    %1$s tg_op = %2$L and (pg_my_temp_schema() = 0
        or to_regclass('pgevict_new') is null and to_regclass('pgevict_old') is null) then
      select case when not (%3$s and %4$s) then 'heads' %5$selse 'event' end, %6$L, %7$s
      into strict v_act, v_type, %8$s
      from %9$s;$source$,
        case op when 'UPDATE' then 'if' else 'elsif' end, op, placed,
        pgevict.watch_types(definition, target, case op when 'DELETE' then 'o' else 'n' end),
        case op when 'UPDATE' then
          format('when %s then ''nothing'' ', pgevict.watch_same(definition, target, 'columns'))
            || coalesce('when not ' || pgevict.watch_same(definition, target, 'fields') || ' then ''both'' ', '')
          else '' end,
        (definition ->> 'table') || case op when 'UPDATE' then '.updated' when 'INSERT' then '.created' else '.deleted' end,
        array_to_string(case op when 'DELETE' then old_texts else new_texts end, ', '), array_to_string(new_names, ', '),
        case op when 'UPDATE' then 'pgevict_old o, pgevict_new n' when 'INSERT' then 'pgevict_new n' else 'pgevict_old o' end);
    end if;
    -- More than one row, but not so many that comparing and rendering them would hold up the writer.
    rendered := rendered || format($source$
      %1$s v_act = 'many' and tg_op = %2$L then
        select (select count(*) from (select from %3$s limit %4$s + 1) r) <= %4$s and %6$s and %7$s into v_whole from %3$s r limit 1;
        if v_whole then
          execute %5$L into v_changed, v_chunks;
        end if;$source$,
      case op when 'UPDATE' then 'if' else 'elsif' end, op, case op when 'DELETE' then 'pgevict_old' else 'pgevict_new' end,
      case op when 'UPDATE' then greatest(escalate_above, 20000) else escalate_above end,
      pgevict.watch_query(definition, target, op), placed, pgevict.watch_types(definition, target, 'r')
        || ' and ' || pgevict.watch_key_types(definition, target, 'r'));
  end loop;

  return format(replace($source$
#variable_conflict use_variable
declare
  v_act text;
  v_whole boolean;
  v_type text;
  %1$s text;
  v_changed bigint;
  v_chunks pgevict.stale[];
  v_chunk pgevict.stale;%16$s
begin
  begin%2$s
    end if;
  exception
    when no_data_found then
      return null;
    when too_many_rows then
      v_act := 'many';
    when undefined_column then
      v_act := 'heads';
    when others then
      raise log 'pgevict: the watch of %%.%% emits prefixes: %% (%%)', tg_table_schema, tg_table_name, sqlerrm, sqlstate;
      v_act := 'heads';
  end;
%17$s  if v_act = 'event'%3$s then
    insert into pgevict.event (announced, type, entity_type%4$s)
    values (pgevict.announce(), v_type, %5$L%6$s);
    return null;
  end if;
  if v_act = 'nothing' then
    return null;
  end if;

  begin%7$s
      elsif v_act = 'both' and %8$s then
        select %9$s into %10$s from pgevict_old o;
        v_chunks := array[row(%11$s)::pgevict.stale];
      elsif v_act = 'event' and %8$s then
        v_chunks := array[row(%12$s)::pgevict.stale];
      end if;
    if not v_whole then
      v_chunks := null;
    elsif v_changed = 0 then
      return null;
    end if;
    if v_chunks is not null and pgevict.oversized(v_chunks) then
      v_chunks := null;
    end if;
  exception
    when others then
      raise log 'pgevict: the watch of %%.%% emits prefixes: %% (%%)', tg_table_schema, tg_table_name, sqlerrm, sqlstate;
      v_chunks := null;
  end;
  if v_chunks is null then
    v_chunks := array[row(%13$L::text[], %14$L::text[], %15$L::text[])::pgevict.stale];
  end if;
  v_type := %5$L || case tg_op
    when 'UPDATE' then '.updated' when 'INSERT' then '.created' when 'DELETE' then '.deleted' else '.truncated' end;
  foreach v_chunk in array v_chunks loop
    if '' = any (v_chunk.prefixes) then
      insert into pgevict.event (announced, flush, type, entity_type)
      values (pgevict.announce(), true, v_type, %5$L);
    else
      insert into pgevict.event (announced, keys, tags, prefixes, type, entity_type)
      values (pgevict.announce(), v_chunk.keys, v_chunk.tags, v_chunk.prefixes,
        v_type, %5$L);
    end if;
  end loop;
  return null;
end
$source$, 'pgevict.announce()', pgevict.announcing()),
    array_to_string(old_names || new_names, E' text;\n  '), asked, fits, event_columns, definition ->> 'table', event_values,
    rendered, case when escalate_above = 0 then 'false' else 'true' end, array_to_string(old_texts, ', '),
    array_to_string(old_names, ', '), array_to_string(pairs, ', '),
    array_to_string(array(select replace(p, 'v_old_', 'v_new_') from unnest(pairs) p), ', '),
    heads.keys, heads.tags, heads.prefixes,
    case when told then E'\n  v_verbs text[];\n  v_ids text[];\n  v_changes jsonb[];' else '' end,
    case when told then format(replace($source$  if v_act = 'told' then
    insert into pgevict.event (announced, flush, keys, tags, prefixes, type, entity_type, entity_id, changes)
    select (select pgevict.announce()), f.flush, case when f.flush then '{}' else e.keys end,
      case when f.flush then '{}' else e.tags end, case when f.flush then '{}' else e.prefixes end,
      %1$L || e.verb, %2$L, e.id, e.changes
    from unnest(v_chunks, v_verbs, v_ids, v_changes) e (keys, tags, prefixes, verb, id, changes),
      lateral (select '' = any (e.prefixes)) f (flush);
    return null;
  end if;
$source$, 'pgevict.announce()', pgevict.announcing()), (definition ->> 'table') || '.', definition ->> 'table') else '' end);
end
$$;
