-- The log and what proves it. Tables only; functions are re-applied on every migrate, this file is frozen once released.

-- One row: what every session must agree on.
create table pgevict.meta (
  one boolean primary key default true check (one),
  -- Version of the schema, and the oldest version a binary may know and still read it.
  schema_version integer not null,
  least_reader integer not null,
  -- Which functions are installed: a number that only grows, and a checksum of their text.
  functions_version integer not null default 0,
  functions_checksum text not null default '',
  -- How writers announce events; set by `pgevict wake MODE`.
  wake text not null default 'adaptive' check (wake in ('adaptive', 'commit', 'bell', 'off')),
  -- Logged copy of the epoch, for readers on a standby; and the identity of this log.
  epoch uuid,
  system_identifier bigint,
  database oid,
  event_table oid,
  -- Every event that this snapshot sees may be gone. Only grows; written before rows are deleted.
  pruned pg_snapshot not null
);

-- One row: a crash, a promotion and a base backup empty it, a clean restart keeps it. Missing = a new epoch.
create unlogged table pgevict.epoch (
  one boolean primary key default true check (one),
  epoch uuid not null,
  system_identifier bigint not null,
  database oid not null,
  event_table oid not null
);

-- Milliseconds of the warden's last beat; an unlogged sequence ignores snapshots and needs no transaction id.
create unlogged sequence pgevict.beat as bigint minvalue 0 start 0;

create sequence pgevict.event_id as bigint;

create table pgevict.event (
  -- Top-level transaction, also inside a savepoint.
  xid xid8 not null default pg_current_xact_id(),
  id bigint not null default nextval('pgevict.event_id'),
  -- Identity of the event: ids repeat after a crash, delivery ids must not.
  uuid uuid not null default gen_random_uuid(),
  version smallint not null default 1,
  -- How the writer announced it: 'n' by its own NOTIFY, 'b' left to the bell, '-' not at all.
  announced "char" not null default '-',
  flush boolean not null default false,
  keys text[] not null default '{}',
  tags text[] not null default '{}',
  prefixes text[] not null default '{}',
  type text,
  entity_type text,
  entity_id text,
  changes jsonb,
  source text,
  created_at timestamptz not null default clock_timestamp(),
  primary key (xid, id)
) with (
  -- Rows are only appended and deleted in batches. Truncating the tail would take a lock that stalls standbys.
  vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0.05,
  autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0.2,
  autovacuum_analyze_scale_factor = 0.05,
  autovacuum_analyze_threshold = 2000
);

-- Life of the instances: a feed pins the log from its cursor on while it lives.
create table pgevict.heartbeat (
  instance_id text not null,
  -- Random per process: two processes of one name never share a row.
  process uuid not null,
  sequence bigint not null,
  cursor pg_snapshot not null,
  beat_at timestamptz not null default clock_timestamp(),
  primary key (instance_id, process)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1);

-- What is watched, for people and for `watches`. The triggers carry their own definition and never read it.
create table pgevict.watch (
  target oid primary key,
  schema_name text not null,
  table_name text not null,
  definition jsonb not null,
  installed_at timestamptz not null default clock_timestamp()
);

-- What one statement made stale; an empty text among the prefixes means everything.
create type pgevict.stale as (keys text[], tags text[], prefixes text[]);
