-- pgevict.text_of(expression text, type oid) returns text
--
-- SQL for the canonical text of an expression of that type, before escaping: what stands for the value in a key.
-- numeric without trailing zeros, timestamptz and timestamp in ISO 8601 (the former in UTC with Z), interval as
-- justify_interval() has it, bytea in hex without a prefix, char(n) without its padding, boolean as true and false,
-- inet with its netmask, no negative zero, everything else as PostgreSQL prints it. NULL for NULL. Writes nothing.
--
-- Values that are equal have one text, or a look-up would find a row under a text that its change never names: see
-- texts_differ() for the types where that cannot be had. And two values of one text are equal: the text can be cast
-- back to the type (that of bytea behind the prefix it lost).
--
-- Every value is printed by its output function, through concat(), and never by a cast, whatever its type: a cast may
-- be a function of the user's. It would run with the owner's rights, and a part of it even when the query that holds it
-- is only planned, as when a column has another type than at the time the SQL was made.
--
-- Trap: what it returns must run under pinned settings (TimeZone, DateStyle and so on), as key() and the functions of
-- watches carry them.
create or replace function pgevict.text_of(expression text, type oid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  printed constant text := format('concat(%s)', expression);
  canonical text;
begin
  canonical := case pgevict.base_of(type)
    when 'numeric'::regtype then
      format('case when strpos(%1$s, ''.'') > 0 then rtrim(rtrim(%1$s, ''0''), ''.'') else %1$s end', printed)
    when 'timestamptz'::regtype then
      format('replace(regexp_replace(%s, '' '', ''T''), ''+00'', ''Z'')', printed)
    when 'timestamp'::regtype then
      format('regexp_replace(%s, '' '', ''T'')', printed)
    when 'bytea'::regtype then
      format('substr(%s, 3)', printed)
    when 'interval'::regtype then
      format('concat(justify_interval(%s))', expression)
    when 'float4'::regtype then
      format('coalesce(nullif(%s, ''-0''), ''0'')', printed)
    when 'float8'::regtype then
      format('coalesce(nullif(%s, ''-0''), ''0'')', printed)
    when 'bpchar'::regtype then
      format('rtrim(%s, '' '')', printed)
    when 'bool'::regtype then
      format('case %s when ''t'' then ''true'' else ''false'' end', printed)
    when 'inet'::regtype then
      format('case when strpos(%1$s, ''/'') > 0 then %1$s when strpos(%1$s, '':'') > 0 then %1$s || ''/128'' else %1$s || ''/32'' end',
        printed)
    else printed
  end;
  -- A composite of nulls is a value, and yet IS NULL.
  return format(
    case when pgevict.plain_type(type) then 'case when %s is not null then %s end'
      else 'case when num_nulls(%s) = 0 then %s end' end,
    expression, canonical);
end
$$;
