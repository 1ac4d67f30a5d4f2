-- pgevict.in_place(relation oid, numbers integer[], names text[]) returns boolean
--
-- True when each of these columns of the table still has its name. Writes nothing.
--
-- Internal. Two things are as they are for a reason:
--   immutable  It is not, but it has to be asked once for each plan, not for each row: the planner puts the answer into
--              the plan. Any change of the table throws away the plans that read its transition tables, and with them
--              the answer.
--   no query   The name comes from pg_identify_object_as_address(), which looks into the catalogue as it is now. A
--              query would look into it as the transaction's snapshot has it, so that a transaction from before a
--              change would put a wrong answer into a plan that outlives it.
create or replace function pgevict.in_place(relation oid, numbers integer[], names text[]) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  found_name text;
begin
  for n in 1 .. cardinality(numbers) loop
    found_name := (pg_identify_object_as_address('pg_class'::regclass, relation, numbers[n])).object_names[3];
    if found_name is distinct from names[n] then
      return false;
    end if;
  end loop;
  return true;
end
$$;
