-- pgevict.watch(target, key, tags, prefixes, columns, changes, escalate_above, fire_on_replica, flush_ok) returns text
--
-- Makes every change of a table an event, whoever writes it.
--
-- target          the table
-- key             template of the key of one row, such as product:{id}; NULL for none
-- tags, prefixes  templates too, such as category:{category_id}
-- columns         an UPDATE counts only if one of these (or of those in templates) changed; NULL: any column
-- escalate_above  a statement that changes more rows makes one event with the literal heads of all templates
-- flush_ok        allows a template that begins with a placeholder: its head is empty, so it empties everything
-- changes         one event for each row, with entity_id and {"column": {"old": ..., "new": ...}} (watch_changes());
--                 columns that are added later appear in it once watch() has run again; not with fire_on_replica, nor on
--                 a partitioned table
-- fire_on_replica  tells also of what logical replication applies, and of what is written under
--                 session_replication_role = replica
--
-- A partitioned table is watched with all its partitions, later ones included; each event carries the names of the
-- table, never those of a partition. A statement through the table is told as a whole, a row that is written to a
-- partition directly by one event (watch_rows()). TRUNCATE of one partition is told for those that were there at the
-- last watch(), so it is worth calling after partitions were added. What ATTACH and DETACH bring and take fires nothing.
-- A child that comes to inherit from a watched table later is not watched: what names the child fires nothing.
--
-- Returns installed, replaced or unchanged. Unchanged = the very same watch is in place and whole: no lock, no DDL, no
-- event, so it may run at every start. Otherwise it makes a trigger function for this watch (watch_build()), puts four
-- statement triggers that call it on the table, records the definition in pgevict.watch and emits the heads of the old
-- and the new definition, since what changed before was not told.
--
-- Runs with the caller's rights: the owner of the table (or TRIGGER and LOCK rights on it) who has pgevict_admin. It
-- waits at most 100 ms for all locks (55P03): waiting longer would hold up every writer behind it. Try
-- again in a new transaction, after a pause.
create or replace function pgevict.watch(
  target regclass,
  key text default null,
  tags text[] default '{}',
  prefixes text[] default '{}',
  columns text[] default null,
  changes boolean default false,
  escalate_above integer default 1000,
  fire_on_replica boolean default false,
  flush_ok boolean default false
) returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '100ms'
as $$
declare
  definition constant jsonb := pgevict.watch_definition(target, key, tags, prefixes, columns, changes, escalate_above,
    fire_on_replica, flush_ok);
  installed record;
  always constant text := case when (definition ->> 'fire_on_replica')::boolean then 'always ' else '' end;
  by_row constant boolean := pgevict.watch_by_row(definition, target);
  cleared boolean;
  op text;
  fired text;
begin
  select * into installed from pgevict.watch_state(target);
  if installed.definition = definition and installed.state = 'ok'
    and not exists (select from pgevict.watch_parts(definition, target))
  then
    return 'unchanged';
  end if;

  -- Whatever drops triggers below has to have its locks by then: waiting for one partition after the other adds up.
  cleared := installed.definition is not null and pgevict.watch_by_row(installed.definition, target)
    and not (by_row and pgevict.watch_token(installed.definition) = pgevict.watch_token(definition));
  perform pgevict.watch_lock(target, case when cleared then 'access exclusive' else 'share row exclusive' end);
  select * into installed from pgevict.watch_state(target);
  if installed.definition = definition and installed.state = 'ok'
    and not exists (select from pgevict.watch_parts(definition, target))
  then
    return 'unchanged';
  end if;
  fired := pgevict.watch_build(definition, target);
  foreach op in array array['insert', 'update', 'delete', 'truncate'] loop
    execute format(
      'create or replace trigger %I after %s on %s %s for each statement execute function pgevict.%I(%L)',
      'pgevict_' || op, op, target,
      case op
        when 'insert' then 'referencing new table as pgevict_new'
        when 'update' then 'referencing old table as pgevict_old new table as pgevict_new'
        when 'delete' then 'referencing old table as pgevict_old'
        else ''
      end,
      fired, definition);
    execute format('alter table %s enable %strigger %I', target, always, 'pgevict_' || op);
  end loop;
  if installed.definition is not null
    and not (by_row and pgevict.watch_token(installed.definition) = pgevict.watch_token(definition))
  then
    perform pgevict.watch_clear(installed.definition);
  end if;
  if by_row then
    perform pgevict.watch_rows(definition, target, fired);
  end if;

  insert into pgevict.watch as w (target, schema_name, table_name, definition)
  values (watch.target, definition ->> 'schema', definition ->> 'table', definition)
  on conflict on constraint watch_pkey do update
    set schema_name = excluded.schema_name, table_name = excluded.table_name, definition = excluded.definition,
      installed_at = clock_timestamp();

  perform pgevict.watch_sweep();
  perform pgevict.note_watch(target, definition);

  if installed.definition is not null and installed.definition <> definition then
    perform pgevict.emit_heads(installed.definition, format('%s.unwatched', installed.definition ->> 'table'));
  end if;
  perform pgevict.emit_heads(definition, format('%s.watched', definition ->> 'table'));
  return case when installed.definition is null then 'installed' else 'replaced' end;
end
$$;
