-- What the warden saw at its last check of the watches. Frozen once released.

-- A row for each watch. A check that finds all as it was writes nothing.
create table pgevict.checked (
  target oid primary key,
  -- What its triggers carried.
  definition jsonb,
  -- What writes nothing to the log and yet changes what the table says: watch_fingerprints().
  fingerprint text not null,
  -- All that the state depends on: while it is the same and the state is ok, nothing is worked out anew.
  basis text not null,
  -- As watch_status() has it; gone: the table was dropped, which was told once.
  state text not null check (state in ('ok', 'drifted', 'missing', 'gone')),
  reason text,
  since timestamptz not null default clock_timestamp(),
  -- Partitions and children of the table; and those that it had and has no more.
  parts oid[] not null default '{}',
  detached oid[] not null default '{}'
) with (fillfactor = 50);
