-- pgevict.set_wake(mode text) returns void
--
-- Sets how writers announce events: adaptive, commit, bell or off. Writes pgevict.meta and makes notifies() anew, which
-- is what writers ask.
create or replace function pgevict.set_wake(mode text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  said text;
begin
  if mode is null or mode <> all (array['adaptive', 'commit', 'bell', 'off']) then
    raise exception 'wake mode % is unknown', coalesce(quote_literal(mode), 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'Use adaptive, commit, bell or off.';
  end if;
  -- One at a time, whether or not the row changes.
  perform from pgevict.meta where one for update;
  update pgevict.meta set wake = mode where one and wake <> mode;
  said := format(' select %s ', case mode
    when 'adaptive' then 'pg_catalog.current_setting(''max_prepared_transactions'') operator(pg_catalog.=) ''0'''
    else (mode = 'commit')::text end);
  if said <> (select prosrc from pg_proc where oid = 'pgevict.notifies()'::regprocedure) then
    execute format('create or replace function pgevict.notifies() returns boolean language sql stable as %L', said);
  end if;
end
$$;
