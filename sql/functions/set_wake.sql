-- pgevict.set_wake(mode text) returns void
--
-- Sets how writers announce events: adaptive, commit, bell or off. Writes pgevict.meta.
create or replace function pgevict.set_wake(mode text) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if mode is null or mode <> all (array['adaptive', 'commit', 'bell', 'off']) then
    raise exception 'wake mode % is unknown', coalesce(quote_literal(mode), 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'Use adaptive, commit, bell or off.';
  end if;
  update pgevict.meta set wake = mode where one and wake <> mode;
end
$$;
