//! The fetch: one top-level statement that returns the proof and a page of events, all of one snapshot.
//!
//! Never a function: a function reads with a snapshot older than its locks. The proof row and the two arms are
//! joined by UNION ALL, each arm with an index condition of its own (with OR the whole index is scanned).

use std::time::SystemTime;

use tokio_postgres::types::{Json, ToSql, Type};
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::event::{Announced, Event, Key, LoggedEvent, Prefix, Tag};
use crate::snapshot::{Cursor, Snapshot, Xid};
use crate::store::epoch::Identity;
use crate::store::failure::failure;
use crate::store::migrate::schema_version;
use crate::store::session::Session;

/// Parameters: base xmax, base in-progress, target xmax or null, target in-progress, after xid, after id,
/// limit, instance id, process.
const FETCH: &str = r#"
select pg_current_snapshot() as snapshot, meta.pruned, epoch.epoch,
       control.system_identifier, this.oid as database, to_regclass('pgevict.event')::oid as event_table,
       epoch.system_identifier is not distinct from control.system_identifier
         and epoch.database is not distinct from this.oid
         and epoch.event_table is not distinct from to_regclass('pgevict.event')::oid as same_log,
       heartbeat.sequence as heartbeat, clock_timestamp() as clock, meta.least_reader,
       null::xid8 as xid, null::int8 as id, null::uuid as uuid, null::int2 as version,
       null::"char" as announced, null::bool as flush, null::text[] as keys, null::text[] as tags,
       null::text[] as prefixes, null::text as type, null::text as entity_type, null::text as entity_id,
       null::jsonb as changes, null::text as source, null::timestamptz as created_at
  from pg_control_system() control
  join pg_database this on this.datname = current_database()
  left join pgevict.meta on meta.one
  left join pgevict.epoch on epoch.one
  left join pgevict.heartbeat on heartbeat.instance_id = $8 and heartbeat.process = $9
union all
select null, null, null, null, null, null, null, null, null, null, page.*
  from (
    (select xid, id, uuid, version, announced, flush, keys, tags, prefixes,
            type, entity_type, entity_id, changes, source, created_at
       from pgevict.event
      where xid >= $1
        and xid < coalesce($3, pg_snapshot_xmax(pg_current_snapshot()))
        and xid <> all ($4)
        and (xid, id) > ($5, $6)
      order by xid, id
      limit $7)
    union all
    (select xid, id, uuid, version, announced, flush, keys, tags, prefixes,
            type, entity_type, entity_id, changes, source, created_at
       from pgevict.event
      where xid = any ($2)
        and xid < coalesce($3, pg_snapshot_xmax(pg_current_snapshot()))
        and xid <> all ($4)
        and (xid, id) > ($5, $6)
      order by xid, id
      limit $7)
    order by xid, id
    limit $7
  ) page
"#;

const FETCH_TYPES: [Type; 9] = [
    Type::XID8,
    Type::XID8_ARRAY,
    Type::XID8,
    Type::XID8_ARRAY,
    Type::XID8,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
    Type::UUID,
];

/// What every fetch proves, whatever events it brings.
#[derive(Debug, Clone)]
pub(crate) struct Proof {
    /// Snapshot of the statement.
    pub(crate) snapshot: Snapshot,
    /// Every event that this sees may be gone.
    pub(crate) pruned: Snapshot,
    /// `None`: the server lost what it kept in memory.
    pub(crate) epoch: Option<Uuid>,
    /// Which log this really is.
    pub(crate) identity: Identity,
    /// The epoch was written by this very log.
    pub(crate) same_log: bool,
    /// Our last heartbeat that the log holds.
    pub(crate) heartbeat: Option<i64>,
    /// The database's clock.
    pub(crate) clock: SystemTime,
}

/// One page.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) proof: Proof,
    /// Ascending by (xid, id).
    pub(crate) events: Vec<LoggedEvent>,
}

/// The fetch of one session: prepared once the session is proved direct, unnamed before.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    prepared: Option<Statement>,
}

/// Whether named prepared statements may be used on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// No pooler sits between: proved by the LISTEN path.
    Direct,
    /// A pooler may sit between.
    Unproved,
}

impl Fetch {
    /// Fetches the events that the cursor wants, at most `limit`; without a cursor only the proof.
    pub(crate) async fn run(
        &mut self,
        session: &Session,
        route: Route,
        cursor: Option<&Cursor>,
        limit: i64,
        instance_id: &str,
        process: Uuid,
    ) -> Result<Fetched> {
        let bounds = cursor.map(Cursor::bounds);
        let nothing = Xid(u64::MAX);
        let (base_xmax, base_in_progress) = match &bounds {
            Some(bounds) => (bounds.base_xmax, bounds.base_in_progress),
            None => (nothing, &[][..]),
        };
        let target = bounds.as_ref().and_then(|bounds| bounds.target);
        let target_xmax = target.map(Snapshot::xmax);
        let target_in_progress = target.map_or(&[][..], Snapshot::in_progress);
        let (after_xid, after_id) = bounds.as_ref().map_or((Xid(0), 0), |bounds| bounds.after);
        let values: [&(dyn ToSql + Sync); 9] = [
            &base_xmax,
            &base_in_progress,
            &target_xmax,
            &target_in_progress,
            &after_xid,
            &after_id,
            &limit,
            &instance_id,
            &process,
        ];
        let doing = "fetching events";
        if route == Route::Direct && self.prepared.is_none() {
            let statement = session
                .bounded(doing, session.client().prepare_typed(FETCH, &FETCH_TYPES))
                .await?;
            self.prepared = Some(statement);
        }
        let rows = match &self.prepared {
            Some(statement) => {
                session
                    .bounded(doing, session.client().query(statement, &values))
                    .await
            }
            None => {
                let typed: Vec<_> = values.into_iter().zip(FETCH_TYPES).collect();
                session
                    .bounded(doing, session.client().query_typed(FETCH, &typed))
                    .await
            }
        };
        decode(rows?)
    }
}

fn decode(rows: Vec<Row>) -> Result<Fetched> {
    let unreadable = |error: tokio_postgres::Error| failure("reading a fetched event", error);
    let mut proof = None;
    let mut events = Vec::with_capacity(rows.len());
    for row in rows {
        match row.try_get::<_, Option<Snapshot>>(0).map_err(unreadable)? {
            Some(snapshot) => {
                may_be_read(row.try_get(9).map_err(unreadable)?)?;
                proof = Some(decode_proof(&row, snapshot).map_err(unreadable)?);
            }
            None => events.push(decode_event(&row).map_err(unreadable)?),
        }
    }
    events.sort_by_key(|event| (event.xid, event.id));
    let proof = proof.ok_or_else(|| Error::database("fetching events: the proof row is missing"))?;
    Ok(Fetched { proof, events })
}

/// Refuses a log that says nothing of what has been pruned, or that only a newer pgevict understands.
fn may_be_read(least_reader: Option<i32>) -> Result<()> {
    match least_reader {
        None => Err(Error::refused(
            "pgevict.meta is empty: uninstall pgevict and migrate again",
        )),
        Some(least) if least > schema_version() => Err(Error::refused(format!(
            "the database needs a pgevict that knows schema version {least} at least, and this one knows {}: use a \
             newer pgevict",
            schema_version()
        ))),
        Some(_) => Ok(()),
    }
}

fn decode_proof(row: &Row, snapshot: Snapshot) -> Result<Proof, tokio_postgres::Error> {
    Ok(Proof {
        snapshot,
        pruned: row.try_get(1)?,
        epoch: row.try_get(2)?,
        identity: Identity {
            system_identifier: row.try_get(3)?,
            database: row.try_get(4)?,
            event_table: row.try_get(5)?,
        },
        same_log: row.try_get(6)?,
        heartbeat: row.try_get(7)?,
        clock: row.try_get(8)?,
    })
}

fn decode_event(row: &Row) -> Result<LoggedEvent, tokio_postgres::Error> {
    Ok(LoggedEvent {
        xid: row.try_get(10)?,
        id: row.try_get(11)?,
        uuid: row.try_get(12)?,
        version: row.try_get(13)?,
        announced: Announced::from_code(row.try_get(14)?),
        created_at: row.try_get(24)?,
        event: decode_content(row).unwrap_or_else(|error| {
            // Texts that are no UTF-8, from a SQL_ASCII database: who knows what they make stale. To fail here would
            // be to fail at every try.
            tracing::warn!(%error, "an event cannot be read and is applied as a flush");
            Event::flush()
        }),
    })
}

fn decode_content(row: &Row) -> Result<Event, tokio_postgres::Error> {
    let texts = |column| row.try_get::<_, Vec<&str>>(column);
    Ok(Event {
        flush: row.try_get(15)?,
        keys: texts(16)?.into_iter().map(Key::stored).collect(),
        tags: texts(17)?.into_iter().map(Tag::stored).collect(),
        prefixes: texts(18)?.into_iter().map(Prefix::stored).collect(),
        kind: row.try_get(19)?,
        entity_type: row.try_get(20)?,
        entity_id: row.try_get(21)?,
        // JSON that this side cannot represent (depth, numbers) makes nothing stale: it is left out.
        changes: row
            .try_get::<_, Option<Json<serde_json::Value>>>(22)
            .ok()
            .flatten()
            .map(|json| json.0),
        source: row.try_get(23)?,
    })
}
