-- pgevict.watch_reason(definition jsonb, target oid, out reason text, out cure text) returns record
--
-- Why a watch is not whole, and what to do about it; for people. Asked only about one that is not (watch_state()), and
-- names the first that it finds. Writes nothing.
create or replace function pgevict.watch_reason(definition jsonb, target oid, out reason text, out cure text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  names text;
  again constant text := 'watch the table again';
begin
  if not exists (select from pg_class c where c.oid = target) then
    if not exists (
      select from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = definition ->> 'schema' and c.relname = definition ->> 'table')
    then
      reason := 'the table was dropped';
      cure := 'unwatch it';
    else
      reason := 'the table was dropped, and another one has its name';
      cure := again || ', or unwatch it';
    end if;
    return;
  end if;

  with recursive tree as (
    select target as member
    union
    select i.inhrelid from tree r join pg_inherits i on i.inhparent = r.member
  )
  select string_agg(concat_ws(' on ', t.tgname, case when t.tgrelid <> target then t.tgrelid::regclass end), ', '
    order by t.tgrelid <> target, t.tgrelid::regclass::text, t.tgname)
  into names
  from tree r
    join pg_trigger t on t.tgrelid = r.member and t.tgenabled not in ('O', 'A')
    join pg_proc p on p.oid = t.tgfoid and p.pronamespace = 'pgevict'::regnamespace;
  if names is not null then
    reason := format('disabled: %s', names);
    cure := 'enable them, or ' || again;
    return;
  end if;

  if not exists (
    select from pg_trigger t
    where t.tgrelid = target and t.tgfoid in (select f.function from pgevict.watch_functions() f))
  then
    reason := 'its triggers were dropped';
    cure := again || ', or unwatch it';
    return;
  end if;

  cure := again;
  select string_agg(quote_ident(w.name), ', ' order by w.name) into names
  from jsonb_each_text(definition -> 'attributes') w (name, number)
  where not exists (
    select from pg_attribute a
    where a.attrelid = target and a.attname = w.name and not a.attisdropped
      and (a.attnum = w.number::integer or (definition ->> 'relation')::oid <> target));
  if names is not null then
    reason := format('dropped or renamed columns: %s', names);
    cure := again || ' with templates that fit its columns';
    return;
  end if;
  reason := 'its triggers are not those of the watch, or a column has another type';
end
$$;
