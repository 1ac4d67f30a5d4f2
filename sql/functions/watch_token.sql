-- pgevict.watch_token(definition jsonb) returns text
--
-- Twelve hexadecimal digits that tell this watch from every other of the database: they end the names of its triggers
-- beside the four of every watch, and of the settings by which these see each other. A restored watch keeps its own.
-- Writes nothing.
create or replace function pgevict.watch_token(definition jsonb) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select left(md5(concat_ws('/', definition ->> 'relation', definition ->> 'schema', definition ->> 'table')), 12)
$$;
