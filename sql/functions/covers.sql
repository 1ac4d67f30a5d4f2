-- pgevict.covers(a pg_snapshot, b pg_snapshot) returns boolean
--
-- True when a sees every transaction id that b sees. Reads and writes nothing.
--
-- Proof. A snapshot sees x if x < xmax and x is not in its list. So a misses an id that b sees in two cases only: (1)
-- it is in the list of a, and b sees it; (2) it is xmax(a) or above, below xmax(b), and not in the list of b. Case (2)
-- is empty if xmax(b) <= xmax(a); else if each of the xmax(b) - xmax(a) ids from xmax(a) on is in the list of b, which
-- holds each id once and none from xmax(b) on, so that counting is enough.
create or replace function pgevict.covers(a pg_snapshot, b pg_snapshot) returns boolean
language sql immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select not exists (select from pg_snapshot_xip(a) x where pg_visible_in_snapshot(x, b))
    and (pg_snapshot_xmax(b) <= pg_snapshot_xmax(a)
      or (select count(*) from pg_snapshot_xip(b) x where x >= pg_snapshot_xmax(a))
        = pg_snapshot_xmax(b)::text::numeric - pg_snapshot_xmax(a)::text::numeric)
$$;
