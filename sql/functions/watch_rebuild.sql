-- pgevict.watch_rebuild() returns integer
--
-- Makes the trigger function of every watch anew, as the functions of this version make it, and says how many. No
-- trigger and no table is touched or locked: sessions take the new body from their next statement on. A watch that has
-- drifted keeps what it has, and so does one whose function cannot be made; watch_status() shows both as drifted.
--
-- Internal: the last step of a migration. Runs with the rights of the caller, who has to be the owner of the schema.
create or replace function pgevict.watch_rebuild() returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  one record;
  rebuilt integer := 0;
begin
  for one in
    select p.proname, obj_description(p.oid, 'pg_proc')::jsonb as definition, (
        select t.tgrelid from pg_trigger t where t.tgfoid = p.oid
        order by t.tgrelid <> (obj_description(p.oid, 'pg_proc')::jsonb ->> 'relation')::oid, t.tgrelid limit 1
      ) as target
    from pgevict.watch_functions() f join pg_proc p on p.oid = f.function
  loop
    continue when one.target is null or one.definition is null;
    begin
      if pgevict.watch_make(one.proname, one.definition, one.target) then
        rebuilt := rebuilt + 1;
      end if;
    exception
      when others then
        raise warning 'pgevict: the watch of % keeps the function it has: %', one.target::regclass, sqlerrm;
    end;
  end loop;
  perform pgevict.watch_sweep();
  return rebuilt;
end
$$;
