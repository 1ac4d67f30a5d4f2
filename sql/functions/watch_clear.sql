-- pgevict.watch_clear(definition jsonb) returns integer
--
-- Drops the triggers that watch_rows() made for this watch, from whatever table carries them, also a partition that was
-- detached since, and says how many. Clones of the row trigger go with it.
--
-- Internal: for watch() and unwatch(), with their caller's rights and under their locks. It waits at most 100 ms for what
-- is not locked yet, all of it together: a table in use must not hold up the writers of those that are locked.
create or replace function pgevict.watch_clear(definition jsonb) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
  started constant timestamptz := clock_timestamp();
  one record;
  dropped integer := 0;
begin
  for one in
    select t.tgname, t.tgrelid::regclass as on_table
    from pg_trigger t
      join pg_proc p on p.oid = t.tgfoid
    where t.tgparentid = 0 and not t.tgisinternal
      and t.tgname ~ ('^pgevict_(row|before|after|part_before|part_after|part_truncate)_' || pgevict.watch_token(definition) || '$')
      and p.pronamespace = 'pgevict'::regnamespace
    order by t.tgrelid, t.tgname
  loop
    perform set_config('lock_timeout',
      greatest(1, 100 - extract(epoch from clock_timestamp() - started) * 1000)::integer::text, true);
    execute format('drop trigger %I on %s', one.tgname, one.on_table);
    dropped := dropped + 1;
  end loop;
  return dropped;
end
$$;
