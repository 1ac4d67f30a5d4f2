-- pgevict.oversized(stale pgevict.stale[]) returns boolean
--
-- True when a key, tag or prefix is over 1 MiB or the texts of one element come to over 16 MiB: the limits of emit().
-- Writes nothing.
create or replace function pgevict.oversized(stale pgevict.stale[]) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  one pgevict.stale;
  size integer;
begin
  foreach one in array stale loop
    size := octet_length(array_to_string(one.keys || one.tags || one.prefixes, ''));
    if size > 16777216 then
      return true;
    end if;
    if size > 1048576
      and exists (select from unnest(one.keys || one.tags || one.prefixes) t where octet_length(t) > 1048576)
    then
      return true;
    end if;
  end loop;
  return false;
end
$$;
