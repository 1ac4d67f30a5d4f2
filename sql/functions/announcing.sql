-- pgevict.announcing() returns text
--
-- The decision of announce() as an expression, to be written into the INSERT of a trigger function: calling announce()
-- there would cost a write a third of what the whole watch does. Kept word for word as it is there. Writes nothing.
create or replace function pgevict.announcing() returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select $expression$coalesce((
      select case
        when pg_current_xact_id() is null then '-'
        when current_setting('pgevict.wake', true) = 'off' then '-'
        when m.wake = 'commit' or (m.wake = 'adaptive' and current_setting('max_prepared_transactions') = '0')
          then case when pg_notify('pgevict', '') is null then '-' else 'n' end
        else '-'
      end
      from pgevict.meta m where m.one
    ), '-')::"char"$expression$
$$;
