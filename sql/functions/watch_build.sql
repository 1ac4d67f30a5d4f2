-- pgevict.watch_build(definition jsonb, target oid) returns text
--
-- Makes the trigger function of a watch and returns its name in schema pgevict; NULL when the watch has drifted.
--
-- Internal: for watch(), whose caller may not create in the schema, so it runs with its owner's rights. It never
-- replaces a function: who may watch his own tables must not change another's watch. Each has a new name, so that
-- dropping a function that is used no more (watch_sweep()) cannot hit one about to be used.
--
-- Whoever may call watch() may also put the function on a table of his by hand. It then emits, from that table's rows,
-- texts of the watch's templates, which such a role may emit anyway.
create or replace function pgevict.watch_build(definition jsonb, target oid) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  name constant text := format('fired_%s_%s', target, left(md5(gen_random_uuid()::text), 12));
begin
  if pgevict.watch_make(name, definition, target) then
    return name;
  end if;
  return null;
end
$$;
