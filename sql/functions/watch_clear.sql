-- pgevict.watch_clear(definition jsonb) returns integer
--
-- Drops the triggers that watch_rows() made for this watch, from whatever table carries them, also a partition that was
-- detached since, and says how many. Clones of the row trigger go with it.
--
-- Internal: for watch() and unwatch(), with their caller's rights and lock_timeout.
create or replace function pgevict.watch_clear(definition jsonb) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
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
    execute format('drop trigger %I on %s', one.tgname, one.on_table);
    dropped := dropped + 1;
  end loop;
  return dropped;
end
$$;
