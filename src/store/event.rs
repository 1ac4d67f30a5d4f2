//! The fetch: one top-level statement that returns the proof and a page of events, all of one snapshot.
//!
//! Never a function: a function reads with a snapshot older than its locks. The proof row and the two arms are
//! joined by UNION ALL, each arm with an index condition of its own (with OR the whole index is scanned).
//!
//! What it costs is not reading but setting up: each column is paid for in each node of the plan, each time. So all
//! that a row says beside its place travels as one record, and what cannot change while a server process lives is
//! read from the settings that the session had it note, not from files and catalogs.

use std::time::SystemTime;

use tokio_postgres::types::{Json, PgLsn, ToSql, Type};
use tokio_postgres::{Row, Statement};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::event::{Announced, Event, Key, LoggedEvent, Prefix, Tag};
use crate::snapshot::{Cursor, Identity, Snapshot, Xid};
use crate::store::failure::failure;
use crate::store::migrate::schema_version;
use crate::store::record::Record;
use crate::store::session::Session;

/// Parameters: from xid, from id, base in-progress, target xmax or null, target in-progress, after xid, after id,
/// limit, instance id, process.
///
/// Arm 1 has one lower bound. Given two, `xid >= A and (xid, id) > (B, C)`, the server begins at the second: with
/// B = 0 each fetch walked the whole index (400,000 events: 1,541 blocks, 10 ms). Arm 2 begins at its ids.
/// A setting that was set and then discarded reads as empty text.
const FETCH: &str = r#"
select null::xid8 as xid, null::int8 as id,
       row(meta.least_reader, pg_current_snapshot(), meta.pruned, clock_timestamp(), heartbeat.sequence,
           pg_current_wal_insert_lsn(),
           epoch.epoch, epoch.system_identifier, epoch.database, epoch.event_table,
           coalesce(nullif(current_setting('pgevict.system_identifier', true), '')::int8,
             (pg_control_system()).system_identifier),
           coalesce(nullif(current_setting('pgevict.database', true), '')::oid,
             (pg_get_object_address('database', array[current_database()::text], '{}')).objid),
           'pgevict.event'::regclass::oid) as said
  from (select) as always
  left join pgevict.meta on meta.one
  left join pgevict.epoch on epoch.one
  left join pgevict.heartbeat on heartbeat.instance_id = $9 and heartbeat.process = $10
union all
(
    (select xid, id, row(uuid, version, announced, created_at, flush, keys, tags, prefixes,
                         type, entity_type, entity_id, changes, source)
       from pgevict.event
      where (xid, id) > ($1, $2)
        and xid < coalesce($4, pg_snapshot_xmax(pg_current_snapshot()))
        and xid <> all ($5)
      order by xid, id
      limit $8)
    union all
    (select xid, id, row(uuid, version, announced, created_at, flush, keys, tags, prefixes,
                         type, entity_type, entity_id, changes, source)
       from pgevict.event
      where xid = any ($3)
        and xid < coalesce($4, pg_snapshot_xmax(pg_current_snapshot()))
        and xid <> all ($5)
        and (xid, id) > ($6, $7)
      order by xid, id
      limit $8)
    order by xid, id
    limit $8
)
"#;

const FETCH_TYPES: [Type; 10] = [
    Type::XID8,
    Type::INT8,
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
    /// Read after the snapshot was taken: all that it sees had been committed in the WAL before this place.
    pub(crate) lsn: PgLsn,
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
        let nothing = (Xid(u64::MAX), i64::MAX);
        let (from, base_in_progress) = match &bounds {
            Some(bounds) => (bounds.from, bounds.base_in_progress),
            None => (nothing, &[][..]),
        };
        let target = bounds.as_ref().and_then(|bounds| bounds.target);
        let target_xmax = target.map(Snapshot::xmax);
        let target_in_progress = target.map_or(&[][..], Snapshot::in_progress);
        let (after_xid, after_id) = bounds.as_ref().map_or((Xid(0), 0), |bounds| bounds.after);
        let values: [&(dyn ToSql + Sync); 10] = [
            &from.0,
            &from.1,
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
    let unreadable = |error| failure("reading what was fetched", error);
    let mut proof = None;
    let mut events = Vec::with_capacity(rows.len().saturating_sub(1));
    for row in rows {
        let said = row.try_get::<_, Record<'_>>(2).map_err(unreadable)?;
        match row.try_get::<_, Option<Xid>>(0).map_err(unreadable)? {
            Some(xid) => {
                let id = row.try_get(1).map_err(unreadable)?;
                events.push(decode_event(xid, id, said)?);
            }
            None => proof = Some(decode_proof(said)?),
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
            "pgevict.meta is empty, as after a restore without data: run `pgevict migrate`",
        )),
        Some(least) if least > schema_version() => Err(Error::refused(format!(
            "the database needs a pgevict that knows schema version {least} at least, and this one knows {}: use a \
             newer pgevict",
            schema_version()
        ))),
        Some(_) => Ok(()),
    }
}

fn decode_proof(mut said: Record<'_>) -> Result<Proof> {
    may_be_read(said.next()?)?;
    let (snapshot, pruned, clock, heartbeat) = (said.next()?, said.next()?, said.next()?, said.next()?);
    let (lsn, epoch) = (said.next()?, said.next()?);
    let stored: (Option<i64>, Option<u32>, Option<u32>) = (said.next()?, said.next()?, said.next()?);
    let identity = Identity {
        system_identifier: said.next()?,
        database: said.next()?,
        event_table: said.next()?,
    };
    let real = (
        identity.system_identifier,
        identity.database,
        identity.event_table,
    );
    Ok(Proof {
        snapshot,
        pruned,
        epoch,
        identity,
        same_log: stored == (Some(real.0), Some(real.1), Some(real.2)),
        heartbeat,
        clock,
        lsn,
    })
}

fn decode_event(xid: Xid, id: i64, mut said: Record<'_>) -> Result<LoggedEvent> {
    Ok(LoggedEvent {
        xid,
        id,
        uuid: said.next()?,
        version: said.next()?,
        announced: Announced::from_code(said.next()?),
        created_at: said.next()?,
        event: decode_content(said).unwrap_or_else(|error| {
            // Texts that are no UTF-8, from a SQL_ASCII database: who knows what they make stale. To fail here would
            // be to fail at every try.
            tracing::warn!(%error, "an event cannot be read and is applied as a flush");
            Event::flush()
        }),
    })
}

fn decode_content(mut said: Record<'_>) -> Result<Event> {
    Ok(Event {
        flush: said.next()?,
        keys: said.texts()?.map(Key::stored).collect(),
        tags: said.texts()?.map(Tag::stored).collect(),
        prefixes: said.texts()?.map(Prefix::stored).collect(),
        kind: said.next()?,
        entity_type: said.next()?,
        entity_id: said.next()?,
        // JSON that this side cannot represent (depth, numbers) makes nothing stale: it is left out.
        changes: said
            .raw()?
            .read::<Option<Json<serde_json::Value>>>()
            .ok()
            .flatten()
            .map(|json| json.0),
        source: said.next()?,
    })
}

#[cfg(test)]
mod tests;
