//! Electing the warden, and its chores: the steps that keep the log short, and the check of the watches.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::store::failure::failure;
use crate::store::session::{Session, bounded};

/// Most events that one step deletes: some tens of ms.
const BATCH: i32 = 2_000;

/// What one step of pruning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) deleted: u64,
    /// Another step may find something.
    pub(crate) more: bool,
}

/// A watch that may let changes pass untold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unwhole {
    /// Schema and table.
    pub(crate) table: String,
    pub(crate) reason: String,
}

/// Claims or renews the office; the fencing number, or `None` when another process holds it. In vain it writes nothing.
pub(crate) async fn claim(
    session: &Session,
    instance_id: &str,
    process: Uuid,
    lease: Duration,
) -> Result<Option<i64>> {
    let row = session
        .bounded(
            "claiming the office of the warden",
            session.client().query_typed_one(
                "select pgevict.claim_warden($1, $2, make_interval(secs => $3))",
                &[
                    (&instance_id, Type::TEXT),
                    (&process, Type::UUID),
                    (&lease.as_secs_f64(), Type::FLOAT8),
                ],
            ),
        )
        .await?;
    Ok(row.get(0))
}

/// Gives the office back.
pub(crate) async fn release(session: &Session, instance_id: &str, process: Uuid) -> Result<()> {
    session
        .bounded(
            "giving back the office of the warden",
            session.client().query_typed(
                "select pgevict.release_warden($1, $2)",
                &[(&instance_id, Type::TEXT), (&process, Type::UUID)],
            ),
        )
        .await
        .map(drop)
}

/// Stores how far the log is now, and drops positions and heartbeats that have served their time.
pub(crate) async fn note_horizon(
    client: &impl GenericClient,
    deadline: Duration,
    retention_max: Duration,
) -> Result<()> {
    let seconds = retention_max.as_secs_f64();
    let parameters = [(&seconds as _, Type::FLOAT8)];
    let sql = "select pgevict.note_horizon(make_interval(secs => $1))";
    let noted = client.query_typed(sql, &parameters);
    bounded(deadline, "noting how far the log is", noted)
        .await
        .map(drop)
}

/// One step of pruning, a transaction of its own.
pub(crate) async fn prune(
    client: &impl GenericClient,
    deadline: Duration,
    retention: Duration,
) -> Result<Step> {
    let seconds = retention.as_secs_f64();
    let parameters = [(&seconds as _, Type::FLOAT8), (&BATCH as _, Type::INT4)];
    let sql = "select deleted, more from pgevict.prune(make_interval(secs => $1), $2)";
    let rows = bounded(deadline, "pruning", client.query_typed(sql, &parameters)).await?;
    let row = rows
        .first()
        .ok_or_else(|| Error::database("pruning: no answer"))?;
    Ok(Step {
        deleted: u64::try_from(row.get::<_, i64>(0)).unwrap_or(0),
        more: row.get(1),
    })
}

/// Compares the watches with what they were at the last check, and has the heads emitted of those that differ. Returns
/// those that are not whole.
pub(crate) async fn check_watches(client: &impl GenericClient, deadline: Duration) -> Result<Vec<Unwhole>> {
    let sql = "select schema_name || '.' || table_name, state || ': ' || reason from pgevict.check_watches()";
    let rows = bounded(deadline, "checking the watches", client.query_typed(sql, &[])).await?;
    let column = |error| failure("checking the watches", error);
    let unwhole = |row: &Row| {
        Ok(Unwhole {
            table: row.try_get(0).map_err(column)?,
            reason: row.try_get(1).map_err(column)?,
        })
    };
    rows.iter().map(unwhole).collect()
}
