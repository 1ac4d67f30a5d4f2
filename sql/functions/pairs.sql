-- pgevict.pairs(old_texts text[], new_texts text[]) returns text[]
--
-- Texts of the old and the new version of one row, template by template: one text where both agree, else both in byte
-- order. Writes nothing.
create or replace function pgevict.pairs(old_texts text[], new_texts text[]) returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  result text[] := '{}';
  o text;
  n text;
begin
  for i in 1 .. cardinality(old_texts) loop
    o := old_texts[i];
    n := new_texts[i];
    if o = n collate "C" then
      result := result || o;
    elsif o < n collate "C" then
      result := result || o || n;
    else
      result := result || n || o;
    end if;
  end loop;
  return result;
end
$$;
