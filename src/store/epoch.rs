//! Which log this is, which life of the server, and the proof of an instance's own life.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::session::{ADMIN_TIMEOUT, Session, bounded};

/// Deadline for establishing an epoch: in a restored database it empties the log, however large that is.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// System identifier of the server, and oid of the database, that a session leads to.
pub(crate) async fn database_of(session: &Session) -> Result<(i64, u32)> {
    let row = session
        .bounded(
            "asking where the session leads",
            session.client().query_typed_one(
                "select control.system_identifier, this.oid \
                 from pg_control_system() control, pg_database this where this.datname = current_database()",
                &[],
            ),
        )
        .await?;
    Ok((row.get(0), row.get(1)))
}

/// Makes sure that an epoch of this identity stands, and returns it. Whoever finds none writes one; one wins.
pub(crate) async fn establish(session: &Session) -> Result<Uuid> {
    let row = session
        .bounded_by(
            ESTABLISH_TIMEOUT,
            "establishing the epoch",
            session
                .client()
                .query_typed_one("select epoch from pgevict.establish()", &[]),
        )
        .await?;
    Ok(row.get(0))
}

/// Which epoch stands, and whether the log was written here: for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpochState {
    /// The epoch, unless a crash or promotion took it and nobody founded another since.
    pub epoch: Option<Uuid>,
    /// Identifier of the server, from its control file.
    pub system_identifier: i64,
    /// The stored identity is the real one. `None`: no instance ever ran here.
    pub same_log: Option<bool>,
}

pub(crate) async fn state(client: &Client) -> Result<EpochState> {
    let asked = client.query_typed_one(
        "select e.epoch, control.system_identifier, \
                case when meta.system_identifier is not null then \
                  (meta.system_identifier, meta.database, meta.event_table) \
                  = (control.system_identifier, this.oid, 'pgevict.event'::regclass::oid) end \
         from pg_control_system() control \
           join pg_database this on this.datname = current_database() \
           left join pgevict.meta on meta.one \
           left join pgevict.epoch e on e.one \
             and (e.system_identifier, e.database, e.event_table) \
               = (control.system_identifier, this.oid, 'pgevict.event'::regclass::oid)",
        &[],
    );
    let row = bounded(ADMIN_TIMEOUT, "asking for the epoch", asked).await?;
    Ok(EpochState {
        epoch: row.get(0),
        system_identifier: row.get(1),
        same_log: row.get(2),
    })
}

/// Makes the log a new one, empty: see `sql/functions/epoch_new.sql`. Returns its epoch.
pub(crate) async fn found_new(transaction: &Transaction<'_>) -> Result<Uuid> {
    let called = transaction.query_typed_one("select pgevict.epoch_new()", &[]);
    let row = bounded(ESTABLISH_TIMEOUT, "founding a new epoch", called).await?;
    Ok(row.get(0))
}

/// Keeps the log over a planned `pg_upgrade`: see `sql/functions/epoch_adopt.sql`. Returns whether it had to.
pub(crate) async fn adopt(transaction: &Transaction<'_>) -> Result<bool> {
    let called = transaction.query_typed_one("select pgevict.epoch_adopt()", &[]);
    let row = bounded(ESTABLISH_TIMEOUT, "adopting the log", called).await?;
    Ok(row.get(0))
}

/// Proves the life of this process and pins the log from `cursor` on.
pub(crate) async fn beat(
    session: &Session,
    instance_id: &str,
    process: Uuid,
    sequence: i64,
    cursor: &Snapshot,
) -> Result<()> {
    session
        .bounded(
            "sending the heartbeat",
            session.client().query_typed(
                "select pgevict.beat_heart($1, $2, $3, $4)",
                &[
                    (&instance_id, Type::TEXT),
                    (&process, Type::UUID),
                    (&sequence, Type::INT8),
                    (cursor, Type::PG_SNAPSHOT),
                ],
            ),
        )
        .await
        .map(drop)
}

/// Withdraws the heartbeat at a clean stop: the log is no longer pinned.
pub(crate) async fn leave(session: &Session, instance_id: &str, process: Uuid) -> Result<()> {
    session
        .bounded(
            "leaving",
            session.client().query_typed(
                "select pgevict.leave($1, $2)",
                &[(&instance_id, Type::TEXT), (&process, Type::UUID)],
            ),
        )
        .await
        .map(drop)
}
