-- pgevict.watch_fired() returns trigger
--
-- Fires after each INSERT, UPDATE, DELETE and TRUNCATE statement on a watched table and writes what it made stale.
-- Argument: the definition as JSON, as watch_definition() builds it. It travels here and in no table that is read here:
-- a transaction with an old snapshot would not see a new definition.
--
-- Writes to pgevict.event: nothing when no row changed in a column of interest; one event per 1,000 rows; the heads of
-- all templates (heads()) on TRUNCATE, when more than escalate_above rows changed, on drift, and for texts over the
-- limits. Up to 20,000 updated rows (or escalate_above, if that is more) are compared to find out whether anything
-- changed; beyond that the comparing would hold up the writer, and the heads are emitted unasked.
--
-- Never breaks the user's write: whatever fails while rendering ends in the heads, and if those fail in a flush; the server's
-- log tells the cause. The rendering only reads, so its EXCEPTION block costs no transaction id. The insert stands outside: if an event cannot be
-- written, the write must not go on without it.
--
-- Runs with its owner's rights, so the writer needs no right on anything of ours. The settings that values are printed
-- under are pinned; compiling (jit) a query over a few rows costs more than running it.
create or replace function pgevict.watch_fired() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'iso_8601'
set extra_float_digits = 1
set bytea_output = 'hex'
set lc_monetary = 'C'
set jit = off
as $$
declare
  definition jsonb;
  most integer;
  touched bigint;
  changed bigint;
  query text;
  chunks pgevict.stale[];
  chunk pgevict.stale;
  verb text := case tg_op
    when 'INSERT' then 'created' when 'UPDATE' then 'updated' when 'DELETE' then 'deleted' else 'truncated' end;
  told "char";
begin
  begin
    definition := tg_argv[0];
    most := (definition ->> 'escalate_above')::integer;
    if tg_op = 'UPDATE' then
      most := greatest(most, 20000);
    end if;
    if tg_op = 'DELETE' then
      select count(*) into touched from (select from pgevict_old limit most + 1) r;
    elsif tg_op <> 'TRUNCATE' then
      select count(*) into touched from (select from pgevict_new limit most + 1) r;
    end if;
    if touched = 0 then
      return null;
    end if;
    if touched <= most then
      query := pgevict.watch_query(definition, tg_relid, tg_op);
      if query is not null then
        execute query into changed, chunks;
        if changed = 0 then
          return null;
        end if;
        if chunks is not null and pgevict.oversized(chunks) then
          chunks := null;
        end if;
      end if;
    end if;
    if chunks is null then
      chunks := array[pgevict.heads(definition)];
    end if;
  exception
    when others then
      raise log 'pgevict: the watch of %.% emits prefixes: % (%)', tg_table_schema, tg_table_name, sqlerrm, sqlstate;
      begin
        chunks := array[pgevict.heads(definition)];
      exception
        when others then
          chunks := array[row('{}', '{}', array[''])::pgevict.stale];
      end;
  end;

  perform pg_current_xact_id();
  told := pgevict.announce();
  foreach chunk in array chunks loop
    if '' = any (chunk.prefixes) then
      insert into pgevict.event (announced, flush, type, entity_type)
      values (told, true, coalesce(definition ->> 'table', tg_table_name) || '.' || verb,
        coalesce(definition ->> 'table', tg_table_name));
    else
      insert into pgevict.event (announced, keys, tags, prefixes, type, entity_type)
      values (told, chunk.keys, chunk.tags, chunk.prefixes, coalesce(definition ->> 'table', tg_table_name) || '.' || verb,
        coalesce(definition ->> 'table', tg_table_name));
    end if;
  end loop;
  return null;
end
$$;
