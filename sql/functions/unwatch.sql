-- pgevict.unwatch(target regclass) returns boolean
--
-- Takes the triggers off a table, its partitions and those that it once had, and emits the heads of its watch, since nothing tells of changes from here on. False:
-- nothing was watched. Forgets the watch of a table that is gone when given its number. Drops the functions of watches
-- that are no more.
--
-- Runs with the caller's rights and waits at most 100 ms for the lock, as watch() does.
create or replace function pgevict.unwatch(target regclass) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set lock_timeout = '100ms'
as $$
declare
  installed record;
  name text;
  recorded jsonb;
begin
  select * into installed from pgevict.watch_state(target);
  if installed.definition is not null then
    perform pgevict.watch_lock(target, 'access exclusive');
    for name in
      select t.tgname from pg_trigger t
      where t.tgrelid = target and t.tgfoid in (select f.function from pgevict.watch_functions() f)
    loop
      execute format('drop trigger %I on %s', name, target);
    end loop;
  end if;
  perform pgevict.watch_clear(d.definition)
  from (
    select installed.definition
    union
    select w.definition from pgevict.watch w where w.target = unwatch.target) d (definition)
  where d.definition is not null;
  delete from pgevict.watch w where w.target = unwatch.target returning w.definition into recorded;
  delete from pgevict.checked c where c.target = unwatch.target;
  perform pgevict.watch_sweep();
  if installed.definition is null and recorded is null then
    return false;
  end if;
  perform pgevict.emit_heads(d.definition, format('%s.unwatched', d.definition ->> 'table'))
  from (select installed.definition union select recorded) d (definition)
  where d.definition is not null;
  return true;
end
$$;
