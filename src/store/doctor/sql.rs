//! The questions. Each returns one row with one JSON document, writes nothing, and asks nothing that every role may not
//! ask, except those of the log. The search_path is `pg_catalog, pg_temp`.

pub(super) const PLACE: &str = "\
select json_build_object(
  'version', current_setting('server_version_num')::int4,
  'role', current_user,
  'database', current_database(),
  'in_recovery', pg_is_in_recovery(),
  'aurora', exists (
    select from pg_proc where proname = 'aurora_version' and pronamespace = 'pg_catalog'::regnamespace),
  'max_prepared', current_setting('max_prepared_transactions')::int4,
  'sees_others', pg_has_role('pg_read_all_stats', 'usage'))";

/// Who could hold the tail of the queue, if he listens: an open transaction, or a client that does not read.
pub(super) const QUEUE: &str = "\
select json_build_object(
  'usage', pg_notification_queue_usage(),
  'hidden', (
    select count(*) from pg_stat_activity where backend_type = 'client backend' and state is null),
  'suspects', coalesce((
    select json_agg(json_build_object(
      'pid', a.pid, 'database', a.datname, 'role', a.usename, 'application', a.application_name, 'state', a.state,
      'wait', a.wait_event_type || '/' || a.wait_event, 'seconds', a.seconds) order by a.seconds desc)
    from (
      select *, extract(epoch from clock_timestamp() - least(xact_start, state_change))::float8 as seconds
      from pg_stat_activity
      where backend_type = 'client backend' and pid <> pg_backend_pid()
        and (xact_start < clock_timestamp() - interval '1 s' or wait_event = 'ClientWrite')
      order by least(xact_start, state_change) limit 5) a), '[]'))";

/// Object 0 of class `pg_database`: what PreCommit_Notify locks.
pub(super) const NOTIFY_LOCK: &str = "\
with locks as (
  select l.granted, a.pid, a.datname, a.usename, a.application_name, a.state, a.wait_event_type, a.wait_event,
    extract(epoch from clock_timestamp() - l.waitstart)::float8 as seconds
  from pg_locks l left join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'object' and l.classid = 'pg_database'::regclass and l.objid = 0
    and l.mode = 'AccessExclusiveLock'),
who as (
  select granted, seconds, json_build_object(
    'pid', pid, 'database', datname, 'role', usename, 'application', application_name, 'state', state,
    'wait', wait_event_type || '/' || wait_event, 'seconds', coalesce(seconds, 0)) as one
  from locks)
select json_build_object(
  'waiting', (select count(*) from who where not granted),
  'longest', (select coalesce(max(seconds), 0) from who where not granted),
  'waiters', coalesce((select json_agg(one) from (
    select one from who where not granted order by seconds desc nulls last limit 5) w), '[]'),
  'holder', (select one from who where granted limit 1))";

/// A transaction has an id from its first write on; its age is seen by its own role, and by pg_read_all_stats.
pub(super) const TRANSACTIONS: &str = "\
select json_build_object(
  'hidden', (
    select count(*) from pg_stat_activity
    where backend_xid is not null and xact_start is null and pid <> pg_backend_pid()),
  'long', coalesce((
    select json_agg(one order by seconds desc) from (
      select extract(epoch from clock_timestamp() - xact_start)::float8 as seconds, json_build_object(
          'pid', pid, 'database', datname, 'role', usename, 'application', application_name, 'state', state,
          'wait', wait_event_type || '/' || wait_event,
          'seconds', extract(epoch from clock_timestamp() - xact_start)::float8,
          'query_seconds', extract(epoch from clock_timestamp() - query_start)::float8) as one
      from pg_stat_activity
      where backend_xid is not null and clock_timestamp() - xact_start > make_interval(secs => $1)
      union all
      select extract(epoch from clock_timestamp() - prepared)::float8, json_build_object(
          'pid', 0, 'database', database, 'role', owner, 'gid', gid, 'state', 'prepared',
          'seconds', extract(epoch from clock_timestamp() - prepared)::float8)
      from pg_prepared_xacts
      where clock_timestamp() - prepared > make_interval(secs => $1)
      order by 1 desc limit 10) l), '[]'))";

/// A clone of a watch's row trigger without the triggers that `watch` puts beside it: the partition came later.
///
/// The trigger function of a watch carries the definition as its comment. A leaf may be written, and its parent watched.
pub(super) const CATALOG: &str = "\
select json_build_object(
  'subscribed', coalesce((
    select json_agg(json_build_object('subscription', subname, 'table', name, 'fires', fires) order by subname, name)
    from (
      select s.subname, format('%I.%I', tn.nspname, c.relname) as name,
        bool_or(coalesce((obj_description(p.oid, 'pg_proc')::jsonb ->> 'fire_on_replica')::boolean, false)) as fires
      from pg_subscription s
        join pg_subscription_rel r on r.srsubid = s.oid
        cross join lateral (select r.srrelid union select t.relid from pg_partition_ancestors(r.srrelid) t) t (relid)
        join pg_trigger g on g.tgrelid = t.relid and not g.tgisinternal
        join pg_proc p on p.oid = g.tgfoid
        join pg_namespace pn on pn.oid = p.pronamespace and pn.nspname = 'pgevict'
        join pg_class c on c.oid = t.relid
        join pg_namespace tn on tn.oid = c.relnamespace
      where s.subdbid = (select oid from pg_database where datname = current_database())
        and p.proname ~ '^fired_'
      group by s.subname, tn.nspname, c.relname) w), '[]'),
  'later', coalesce((
    select json_agg(json_build_object('table', pg_partition_root(g.tgrelid)::regclass::text,
      'partition', g.tgrelid::regclass::text) order by 1)
    from pg_trigger g join pg_proc p on p.oid = g.tgfoid join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'pgevict' and g.tgparentid <> 0 and left(g.tgname, 12) = 'pgevict_row_'
      and not exists (
        select from pg_trigger d
        where d.tgrelid = g.tgrelid and d.tgname = replace(g.tgname, '_row_', '_part_before_'))), '[]'),
  'publications', coalesce((
    select json_agg(json_build_object('name', pubname, 'what', what) order by pubname, what) from (
      select pubname, 'all tables' as what from pg_publication where puballtables
      union
      select p.pubname, 'schema' from pg_publication p
        join pg_publication_namespace n on n.pnpubid = p.oid
        join pg_namespace s on s.oid = n.pnnspid
      where s.nspname = 'pgevict'
      union
      select p.pubname, 'table' from pg_publication p
        join pg_publication_rel r on r.prpubid = p.oid
        join pg_class c on c.oid = r.prrelid
        join pg_namespace s on s.oid = c.relnamespace
      where s.nspname = 'pgevict') l), '[]'))";

/// By catalog, since a name in a schema that the role may not use is an error.
pub(super) const RIGHTS: &str = "\
with home as (
  select n.oid, has_schema_privilege(n.oid, 'usage') as usable from pg_namespace n
  where n.nspname = 'pgevict' and exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'meta')),
may as (
  select p.proname, bool_and(has_function_privilege(p.oid, 'execute')) as run
  from home join pg_proc p on p.pronamespace = home.oid group by p.proname)
select (
  select to_json(r) from (
    select
      usable
        and (select bool_and(has_table_privilege(c.oid, 'select')) from pg_class c where c.relnamespace = home.oid
          and c.relname in ('meta', 'epoch', 'event', 'heartbeat', 'horizon', 'warden', 'sweep'))
        and coalesce((select bool_and(run) from may where proname in ('establish', 'beat_heart', 'leave')), false)
        as read,
      usable and coalesce((select bool_and(run) from may where proname in ('emit', 'flush')), false) as emit,
      usable and coalesce((
        select bool_and(run) from may where proname in ('claim_warden', 'note_horizon', 'prune')), false) as prune,
      usable and coalesce((
        select bool_and(run) from may where proname in ('watch_status', 'watch_state', 'watch_functions')), false)
        and (select bool_and(has_table_privilege(c.oid, 'select')) from pg_class c where c.relnamespace = home.oid
          and c.relname = 'watch') as watches
    from home) r)";

pub(super) const INSTALLED: &str = "\
select (
  select json_build_object('schema', schema_version, 'least_reader', least_reader, 'functions', functions_version,
    'checksum', functions_checksum, 'wake', wake)
  from pgevict.meta where one)";

/// The log is read by its key from below; a deadline bounds the walk over what is dead.
pub(super) const LOG: &str = "\
select json_build_object(
  'bytes', pg_total_relation_size(e.oid),
  'oldest', (
    select extract(epoch from clock_timestamp() - created_at)::float8 from pgevict.event order by xid, id limit 1),
  'instances', (select count(*) from pgevict.heartbeat where beat_at > clock_timestamp() - interval '60 s'),
  'slowest', (
    select instance_id from pgevict.heartbeat where beat_at > clock_timestamp() - interval '60 s'
    order by pg_snapshot_xmin(cursor) limit 1),
  'warden', (
    select instance_id from pgevict.warden where process is not null
      and abs(extract(epoch from clock_timestamp() - renewed_at)) < extract(epoch from lease)),
  'noted', (select extract(epoch from clock_timestamp() - max(taken_at))::float8 from pgevict.horizon),
  'dead_rows', pg_stat_get_dead_tuples(e.oid),
  'live_rows', pg_stat_get_live_tuples(e.oid),
  'autovacuum', current_setting('autovacuum')::boolean
    and not coalesce('autovacuum_enabled=false' = any (e.reloptions) or 'autovacuum_enabled=off' = any (e.reloptions), false))
from pg_class e where e.oid = 'pgevict.event'::regclass";
