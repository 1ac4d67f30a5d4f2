-- pgevict.watch_row_source(definition jsonb, target oid) returns text
--
-- Body of the row trigger function of a watch (watch_rows()): one event for one row, as watch_source() renders it, the
-- names of the watched table in it whatever partition the row is in. After TRUNCATE of a partition it writes the heads
-- of all templates. NULL when a column that counts is gone. Writes nothing.
--
-- It never breaks the user's write: whatever fails while rendering ends in the heads, as in watch_source(). That is also
-- why nothing here is sure of what a partition looks like: its columns have other numbers, so they are read by name, and
-- whether they are those that were watched is asked of the watched table, for each row. Its plans name no table, so no
-- change of one throws them away: in_place() is given a variable, lest its answer becomes part of a plan.
--
-- It runs for what a subscription applies as well: nothing depends on search_path or on who runs it, and old and new
-- are all it reads.
create or replace function pgevict.watch_row_source(definition jsonb, target oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  heads constant pgevict.stale := pgevict.heads(definition);
  numbers integer[];
  names text[];
  kind text;
  texts text[];
  -- Of each kind, SQL for the list of texts of the old row, of the new one, and of both.
  old_lists text[] := '{}';
  new_lists text[] := '{}';
  both_lists text[] := '{}';
begin
  if exists (
    select from jsonb_object_keys(definition -> 'attributes') name
    where not exists (
      select from pg_attribute a where a.attrelid = target and a.attname = name and a.attnum > 0 and not a.attisdropped)
  ) then
    return null;
  end if;
  select coalesce(array_agg(w.number::integer order by w.name collate "C"), '{}'),
    coalesce(array_agg(w.name order by w.name collate "C"), '{}')
  into numbers, names
  from jsonb_each_text(definition -> 'attributes') w (name, number);

  foreach kind in array array['key', 'tags', 'prefixes'] loop
    texts := pgevict.watch_texts(definition, target, kind, 'old');
    old_lists := old_lists || format('array[%s]::text[]', array_to_string(texts, ', '));
    texts := pgevict.watch_texts(definition, target, kind, 'new');
    new_lists := new_lists || format('array[%s]::text[]', array_to_string(texts, ', '));
    both_lists := both_lists || format('pgevict.pairs(%s, %s)', old_lists[cardinality(old_lists)],
      new_lists[cardinality(new_lists)]);
  end loop;

  return format(replace($source$
#variable_conflict use_variable
declare
  v_relation oid := %1$s;
  v_same boolean;
  v_whole boolean := false;
  v_type constant text := %2$L || case tg_op
    when 'UPDATE' then '.updated' when 'INSERT' then '.created' when 'DELETE' then '.deleted' else '.truncated' end;
  v_stale pgevict.stale;
begin
  begin
    -- Another table than the watched one was restored, and is taken by name.
    v_whole := tg_op <> 'TRUNCATE' and %3$s and (pgevict.in_place(v_relation, %4$L, %5$L)
      or (tg_relid <> v_relation and v_relation <> all (array(select a.relid from pg_partition_ancestors(tg_relid) a))));
    if v_whole and tg_op = 'UPDATE' then
      select %6$s into v_same from (select old.*) o, (select new.*) n;
      if v_same then
        return null;
      end if;
      v_whole := %7$s;
      v_stale := row(%8$s);
    elsif v_whole and tg_op = 'INSERT' then
      v_whole := %7$s;
      v_stale := row(%9$s);
    elsif v_whole then
      v_whole := %10$s;
      v_stale := row(%11$s);
    end if;
    if v_whole and pgevict.oversized(array[v_stale]) then
      v_whole := false;
    end if;
  exception
    when others then
      raise log 'pgevict: the watch of %%.%% emits prefixes: %% (%%)', tg_table_schema, tg_table_name, sqlerrm, sqlstate;
      v_whole := false;
  end;
  if not coalesce(v_whole, false) then
    v_stale := row(%12$L::text[], %13$L::text[], %14$L::text[]);
  end if;
  if '' = any (v_stale.prefixes) then
    insert into pgevict.event (announced, flush, type, entity_type)
    values (pgevict.announce(), true, v_type, %2$L);
  else
    insert into pgevict.event (announced, keys, tags, prefixes, type, entity_type)
    values (pgevict.announce(), v_stale.keys, v_stale.tags, v_stale.prefixes, v_type, %2$L);
  end if;
  return null;
end
$source$, 'pgevict.announce()', pgevict.announcing()),
    (definition ->> 'relation')::oid, definition ->> 'table',
    case when (definition ->> 'escalate_above')::integer = 0 then 'false' else 'true' end, numbers, names,
    pgevict.watch_same(definition, target, 'columns'), pgevict.watch_types(definition, target, 'new'),
    array_to_string(both_lists, ', '), array_to_string(new_lists, ', '), pgevict.watch_types(definition, target, 'old'),
    array_to_string(old_lists, ', '), heads.keys, heads.tags, heads.prefixes);
end
$$;
