-- Who may do what; run last, after the functions, whenever these are applied. A role that does not exist is left out.
--
-- pgevict_emitter   emits events
-- pgevict_reader    fetches, keeps a heartbeat, founds an epoch, marks what it reads
-- pgevict_instance  reader; warden: prunes the log, checks the watches; and later what consumers need
-- pgevict_admin     all of these; watches tables (its own) and sets the wake mode
revoke all on all routines in schema pgevict from public;
revoke all on all tables in schema pgevict from public;

do $do$
declare
  everyone constant text[] := array['pgevict_emitter', 'pgevict_reader', 'pgevict_instance', 'pgevict_admin'];
  wanted constant text[] := array[
    ['pgevict_emitter', 'execute on function pgevict.emit, pgevict.flush, pgevict.evict_prefix'],
    ['pgevict_reader', 'select on pgevict.meta, pgevict.epoch, pgevict.event, pgevict.heartbeat, pgevict.beat'],
    ['pgevict_reader', 'execute on function pgevict.establish, pgevict.beat_heart, pgevict.leave, pgevict.mark'],
    ['pgevict_reader', 'select on pgevict.horizon, pgevict.warden, pgevict.sweep'],
    ['pgevict_instance', 'execute on function pgevict.claim_warden, pgevict.release_warden, pgevict.note_horizon'],
    ['pgevict_instance', 'execute on function pgevict.prune, pgevict.check_watches'],
    ['pgevict_admin', 'select, insert, update, delete on pgevict.watch'],
    ['pgevict_admin', 'select, delete on pgevict.checked'],
    ['pgevict_admin', 'execute on all functions in schema pgevict']];
  role_name text;
begin
  foreach role_name in array everyone loop
    continue when not exists (select from pg_catalog.pg_roles where rolname = role_name);
    execute pg_catalog.format('grant usage on schema pgevict to %I', role_name);
    execute pg_catalog.format(
      'grant execute on function pgevict.escape, pgevict.key(text), pgevict.key("char"), pgevict.key(anyelement), '
      'pgevict.key(text, anycompatiblearray), pgevict.text_of to %I', role_name);
  end loop;
  for n in 1 .. array_length(wanted, 1) loop
    continue when not exists (select from pg_catalog.pg_roles where rolname = wanted[n][1]);
    execute pg_catalog.format('grant %s to %I', wanted[n][2], wanted[n][1]);
  end loop;
end
$do$;
