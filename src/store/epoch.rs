//! Which log this is, which life of the server, and the proof of an instance's own life.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::session::Session;

/// Deadline for establishing an epoch: in a restored database it empties the log, however large that is.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// Which log this is. Differs after a restore, a clone into another cluster or an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) system_identifier: i64,
    pub(crate) database: u32,
    pub(crate) event_table: u32,
}

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
