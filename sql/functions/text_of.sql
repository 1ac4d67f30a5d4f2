-- pgevict.text_of(expression text, type oid) returns text
--
-- SQL for the canonical text of an expression of that type, before escaping: what stands for the value in a key.
-- numeric without trailing zeros, timestamptz and timestamp in ISO 8601 (the former in UTC with Z), bytea in hex without
-- a prefix, char(n) without its padding, everything else as PostgreSQL prints it. Writes nothing.
--
-- Traps: what it returns must run under the pinned settings that key() and watch_fired() carry (TimeZone, DateStyle and
-- so on). Types from outside pg_catalog are printed by their output function, never by a cast: a cast may be a function
-- of the user's, and it would run with the owner's rights.
create or replace function pgevict.text_of(expression text, type oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  base oid := type;
  next oid;
  space oid;
begin
  loop
    case base
      when 'int4'::regtype, 'int8'::regtype, 'text'::regtype, 'varchar'::regtype, 'uuid'::regtype, 'bool'::regtype then
        return format('(%s)::text', expression);
      when 'numeric'::regtype then
        return format('trim_scale((%s)::numeric)::text', expression);
      when 'timestamptz'::regtype then
        return format('replace(regexp_replace((%s)::timestamptz::text, '' '', ''T''), ''+00'', ''Z'')', expression);
      when 'timestamp'::regtype then
        return format('regexp_replace((%s)::timestamp::text, '' '', ''T'')', expression);
      when 'bytea'::regtype then
        return format('encode((%s)::bytea, ''hex'')', expression);
      when 'bpchar'::regtype then
        return format('(%s)::bpchar::text', expression);
      else
        select t.typbasetype, t.typnamespace into next, space from pg_type t where t.oid = base;
        if next = 0 then
          exit;
        end if;
        base := next;
    end case;
  end loop;
  if space = 'pg_catalog'::regnamespace then
    return format('(%s)::text', expression);
  end if;
  return format('case when num_nulls(%1$s) = 0 then format(''%%s'', %1$s) end', expression);
end
$$;
