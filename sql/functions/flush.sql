-- pgevict.flush(source text) returns xid8
--
-- Empties every cache when the caller's transaction commits. Returns the id of the transaction. Writes one row to
-- pgevict.event and announces it. What empties only a part is evict_prefix().
create or replace function pgevict.flush(source text default null) returns xid8
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me constant xid8 := pg_current_xact_id();
begin
  insert into pgevict.event (announced, flush, source) values (pgevict.announce(), true, flush.source);
  return me;
end
$$;
