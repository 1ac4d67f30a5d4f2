-- pgevict.evict_prefix(prefix text, source text) returns xid8
--
-- Drops every entry whose key, or one of whose tags, begins with the prefix. Returns the id of the transaction. An
-- empty prefix is refused: that is flush(). Writes through emit().
create or replace function pgevict.evict_prefix(prefix text, source text default null) returns xid8
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(prefix, '') = '' then
    raise exception 'evict_prefix: prefix is empty, which would empty everything'
      using errcode = 'invalid_parameter_value', hint = 'Use pgevict.flush() if that is what you want.';
  end if;
  return pgevict.emit(keys => '{}', prefixes => array[prefix], source => source);
end
$$;
