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
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  with recursive domains as (
    select t.oid, t.typbasetype, t.typnamespace from pg_type t where t.oid = text_of.type
    union all
    select t.oid, t.typbasetype, t.typnamespace from domains d join pg_type t on t.oid = d.typbasetype
  )
  select case
      when d.oid = 'numeric'::regtype then format('trim_scale((%s)::numeric)::text', expression)
      when d.oid = 'timestamptz'::regtype then
        format('replace(regexp_replace((%s)::timestamptz::text, '' '', ''T''), ''+00'', ''Z'')', expression)
      when d.oid = 'timestamp'::regtype then format('regexp_replace((%s)::timestamp::text, '' '', ''T'')', expression)
      when d.oid = 'bytea'::regtype then format('encode((%s)::bytea, ''hex'')', expression)
      when d.oid = 'bpchar'::regtype then format('(%s)::bpchar::text', expression)
      when d.typnamespace = 'pg_catalog'::regnamespace then format('(%s)::text', expression)
      else format('case when num_nulls(%1$s) = 0 then format(''%%s'', %1$s) end', expression)
    end
  from domains d
  where d.typbasetype = 0
$$;
