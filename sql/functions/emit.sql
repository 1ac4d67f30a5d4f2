-- pgevict.emit(keys, tags, prefixes, type, entity_type, entity_id, changes, source) returns xid8
--
-- Writes one event in the caller's transaction: it takes effect if and when that commits.
--
-- keys, tags, prefixes  what went stale, each text at most 1 MiB, no NULL among them, no empty prefix
-- type                  such as queue.updated; required when nothing is stale (an event for handlers only)
-- entity_type, entity_id  what it happened to
-- changes               {"field": {"old": ..., "new": ...}}
-- source                id of the instance that emits
--
-- Returns the id of the transaction, which is the event's. Writes one row to pgevict.event and announces it. An event
-- over 16 MiB is refused: every instance reads every event. `changes` counts as it is printed: stored, it may be packed,
-- and a number such as 1e131071 is short.
--
-- Runs with its owner's rights: the caller needs EXECUTE (role pgevict_emitter) and no right on any table.
create or replace function pgevict.emit(
  keys text[],
  tags text[] default '{}',
  prefixes text[] default '{}',
  type text default null,
  entity_type text default null,
  entity_id text default null,
  changes jsonb default null,
  source text default null
) returns xid8
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  me constant xid8 := pg_current_xact_id();
  size bigint;
begin
  -- What is plainly in order is written at once: PL/pgSQL sets up each expression anew in each transaction.
  if greatest(array_ndims(keys), array_ndims(tags), array_ndims(prefixes)) = 1
    and octet_length(array_to_string(keys || tags || prefixes, '')) <= 1000000
    and changes is null
    and octet_length(concat(type, entity_type, entity_id, source)) <= 1000000
    and array_position(keys, null) is null
    and array_position(tags, null) is null
    and array_position(prefixes, null) is null
    and '' <> all (prefixes)
  then
    insert into pgevict.event (announced, keys, tags, prefixes, type, entity_type, entity_id, changes, source)
    values (pgevict.announce(), emit.keys, emit.tags, emit.prefixes, emit.type,
      emit.entity_type, emit.entity_id, emit.changes, emit.source);
    return me;
  end if;

  keys := coalesce(keys, '{}');
  tags := coalesce(tags, '{}');
  prefixes := coalesce(prefixes, '{}');

  size := octet_length(array_to_string(keys, '')) + octet_length(array_to_string(tags, ''))
    + octet_length(array_to_string(prefixes, ''));
  if size > 1048576
    or greatest(array_ndims(keys), array_ndims(tags), array_ndims(prefixes)) > 1
    or array_position(keys, null) is not null
    or array_position(tags, null) is not null
    or array_position(prefixes, null) is not null
    or '' = any (prefixes)
  then
    perform pgevict.check_texts('keys', keys), pgevict.check_texts('tags', tags),
      pgevict.check_texts('prefixes', prefixes);
  end if;
  size := size + coalesce(octet_length(type), 0) + coalesce(octet_length(entity_type), 0)
    + coalesce(octet_length(entity_id), 0) + coalesce(octet_length(source), 0) + coalesce(octet_length(changes::text), 0);
  if size > 16777216 then
    raise exception 'emit: the event has % bytes, over the limit of 16777216 bytes (16 MiB)', size
      using errcode = 'invalid_parameter_value', hint = 'Emit several events, or a prefix.';
  end if;
  if type is null and cardinality(keys) = 0 and cardinality(tags) = 0 and cardinality(prefixes) = 0 then
    raise exception 'emit: no key, no tag, no prefix and no type: the event would say nothing'
      using errcode = 'invalid_parameter_value',
            hint = 'Name what went stale, give a type for handlers, or use pgevict.flush() to empty everything.';
  end if;

  insert into pgevict.event (announced, keys, tags, prefixes, type, entity_type, entity_id, changes, source)
  values (pgevict.announce(), emit.keys, emit.tags, emit.prefixes, emit.type, emit.entity_type, emit.entity_id,
    emit.changes, emit.source);
  return me;
end
$$;
