-- What pruning needs to know, and who does it. Frozen once released.

-- Positions of the past: what was committed by when. Pruning picks one that is old enough.
create table pgevict.horizon (
  taken_at timestamptz primary key default clock_timestamp(),
  snapshot pg_snapshot not null
);

-- One row: the elected instance. Held while less than `lease` has passed since `renewed_at`, in either direction.
create table pgevict.warden (
  one boolean primary key default true check (one),
  -- Grows with each owner.
  fence bigint not null default 0,
  instance_id text,
  -- Null: nobody.
  process uuid,
  renewed_at timestamptz not null default clock_timestamp(),
  lease interval not null default '0'
) with (fillfactor = 50);

-- One row: how far deleting has come. A cursor as a feed has it: what base sees is gone; of what target sees, all up to
-- and including (after_xid, after_id). No target: nothing is under way.
create table pgevict.sweep (
  one boolean primary key default true check (one),
  base pg_snapshot,
  target pg_snapshot,
  after_xid xid8 not null default '0',
  after_id bigint not null default 0
) with (fillfactor = 50);

insert into pgevict.warden default values;
insert into pgevict.sweep default values;

-- Without statistics the planner takes a table of one row for one of thousands.
analyze pgevict.warden, pgevict.sweep;
