-- pgevict.emit_heads(definition jsonb, type text) returns void
--
-- Emits all that a watch can ever make stale, as one event of that type (such as products.watched). Writes through
-- emit() and flush().
create or replace function pgevict.emit_heads(definition jsonb, type text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  stale constant pgevict.stale := pgevict.heads(definition);
begin
  if '' = any (stale.prefixes) then
    perform pgevict.flush();
  else
    perform pgevict.emit(stale.keys, stale.tags, stale.prefixes, type, definition ->> 'table');
  end if;
end
$$;
