-- pgevict.watch_make(name text, definition jsonb, target oid) returns boolean
--
-- Makes the trigger function of a watch, or makes it anew: schema pgevict, that name, body watch_source(). False, and
-- nothing made, when the watch has drifted. A watch by row (watch_by_row()) gets its row function, too: that name with
-- _row behind it, body watch_row_source().
--
-- Internal. Runs with the caller's rights, and only the owner of the schema may create in it: called by anybody else,
-- it fails. What it makes runs with the owner's rights. Nothing it is given becomes SQL: the body quotes all of it.
-- The comment on the function holds the definition, for watch_rebuild(): nobody else can write it.
--
-- Pinned on the function: the path; the settings that values are printed under, if any type that is printed depends on
-- one; jit, since compiling a query over a few rows costs more than running it; and that plans are kept from the first
-- statement of a session on. Each setting costs every statement on the table a fraction of a microsecond.
create or replace function pgevict.watch_make(name text, definition jsonb, target oid) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  source constant text := pgevict.watch_source(definition, target);
  printing text := '';
  made record;
  grantee text;
begin
  if source is null then
    return false;
  end if;
  if exists (
    select from pg_attribute a
      join pg_type t on t.oid = pgevict.base_of(a.atttypid)
    where a.attrelid = target and a.attnum > 0 and not a.attisdropped
      and (definition -> 'fields' ? a.attname or definition ? 'shown' or not pgevict.plain_type(a.atttypid))
      and t.typtype <> 'e'
      and t.oid <> all (array['int2', 'int4', 'int8', 'numeric', 'bool', 'text', 'varchar', 'bpchar', 'name', 'uuid',
        'json']::regtype[])
  ) then
    printing := 'set timezone = ''UTC'' set datestyle = ''ISO, YMD'' set intervalstyle = ''iso_8601'' '
      'set extra_float_digits = 1 set bytea_output = ''hex'' set lc_monetary = ''C''';
  end if;

  for made in
    select watch_make.name, source as body
    union all
    select watch_make.name || '_row', pgevict.watch_row_source(definition, target)
    where pgevict.watch_by_row(definition, target)
  loop
    execute format(
      'create or replace function pgevict.%I() returns trigger language plpgsql volatile security definer '
      'set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan %s as %L',
      made.name, printing, made.body);
    execute format('comment on function pgevict.%I() is %L', made.name, definition);
    execute format('revoke all on function pgevict.%I() from public', made.name);
    for grantee in
      select case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
      from pg_proc p, aclexplode(p.proacl) a
      where p.pronamespace = 'pgevict'::regnamespace and p.proname = 'watch' and a.privilege_type = 'EXECUTE'
        and a.grantee <> p.proowner
    loop
      execute format('grant execute on function pgevict.%I() to %s', made.name, grantee);
    end loop;
  end loop;
  return true;
end
$$;
