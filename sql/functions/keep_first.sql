-- pgevict.keep_first() returns trigger
--
-- Before each row that enters a table of one row: drops it when there is one. A data-only restore into an installed schema
-- brings the row of another log along, and must neither fail nor win. Writes nothing.
create or replace function pgevict.keep_first() returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  taken boolean;
begin
  execute format('select exists (select from pgevict.%I)', tg_table_name) into taken;
  if taken then
    return null;
  end if;
  return new;
end
$$;
