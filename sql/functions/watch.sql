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
-- changes, fire_on_replica  not supported yet
--
-- Returns installed, replaced or unchanged. Unchanged = the very same watch is in place and whole: no lock, no DDL, no
-- event, so it may run at every start. Otherwise it makes a trigger function for this watch (watch_build()), puts four
-- statement triggers that call it on the table, records the definition in pgevict.watch and emits the heads of the old
-- and the new definition, since what changed before was not told.
--
-- Runs with the caller's rights: the owner of the table (or TRIGGER and LOCK rights on it) who has pgevict_admin. It
-- waits at most 100 ms for the lock on the table (55P03): waiting longer would hold up every writer behind it. Try
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
  op text;
  fired text;
begin
  select * into installed from pgevict.watch_state(target);
  if installed.definition = definition and installed.state = 'ok' then
    return 'unchanged';
  end if;

  execute format('lock table only %s in share row exclusive mode', target);
  select * into installed from pgevict.watch_state(target);
  if installed.definition = definition and installed.state = 'ok' then
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
    execute format('alter table %s enable trigger %I', target, 'pgevict_' || op);
  end loop;

  insert into pgevict.watch as w (target, schema_name, table_name, definition)
  values (watch.target, definition ->> 'schema', definition ->> 'table', definition)
  on conflict on constraint watch_pkey do update
    set schema_name = excluded.schema_name, table_name = excluded.table_name, definition = excluded.definition,
      installed_at = clock_timestamp();

  perform pgevict.watch_sweep();

  if installed.definition is not null and installed.definition <> definition then
    perform pgevict.emit_heads(installed.definition, format('%s.unwatched', installed.definition ->> 'table'));
  end if;
  perform pgevict.emit_heads(definition, format('%s.watched', definition ->> 'table'));
  return case when installed.definition is null then 'installed' else 'replaced' end;
end
$$;
