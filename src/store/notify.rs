//! LISTEN, NOTIFY and what a session is listening to.

use tokio_postgres::types::{ToSql, Type};

use crate::error::Result;
use crate::store::session::{Connector, Purpose, Session, bounded};

/// The channel of wakes. Constant and without content: "look now".
pub(crate) const WAKE_CHANNEL: &str = "pgevict";

/// The channel on which a fleet shares its probes.
pub(crate) const PROBE_CHANNEL: &str = "pgevict_probe";

/// Longest wait of a probe for the server-wide NOTIFY lock; longer means congested.
const NOTIFY_LOCK_TIMEOUT: &str = "200ms";

/// Begins to listen to the channel. The name is ours or random hex, never a user's.
pub(crate) async fn listen(session: &Session, channel: &str) -> Result<()> {
    session
        .bounded(
            "starting LISTEN",
            session.client().batch_execute(&format!("listen {channel}")),
        )
        .await
}

/// Stops listening to the channel.
pub(crate) async fn unlisten(session: &Session, channel: &str) -> Result<()> {
    session
        .bounded(
            "ending LISTEN",
            session.client().batch_execute(&format!("unlisten {channel}")),
        )
        .await
}

/// True when the session that answers is the one that listens to the channel: false behind a pooler.
pub(crate) async fn is_listening(session: &Session, channel: &str) -> Result<bool> {
    let row = session
        .bounded(
            "checking LISTEN",
            session.client().query_typed_one(
                "select exists (select from pg_listening_channels() name where name = $1)",
                &[(&channel, Type::TEXT)],
            ),
        )
        .await?;
    Ok(row.get(0))
}

/// True when the server's process behind our session is not ours alone: behind a pooler. While a second session of the
/// address holds a transaction open, a pooler has another process answer us than before, or has given ours away.
pub(crate) async fn changes_hands(session: &Session, address: &Connector) -> Result<bool> {
    let mut second = address.open_unjudged(Purpose::Probe).await?;
    let before = process(session).await?;
    let (deadline, doing) = (second.statement_timeout(), "asking who answers");
    let transaction = bounded(deadline, doing, second.client_mut().transaction()).await?;
    let asked = async {
        transaction
            .query_typed_one(PROCESS, &[])
            .await?
            .try_get::<_, i32>(0)
    };
    let other = bounded(deadline, doing, asked).await?;
    let after = process(session).await?;
    Ok(before == other || before != after)
}

/// Sends one empty notification, as a transaction of its own. Returns after its commit. The channel is ours or random
/// hex, never a user's.
///
/// # Errors
/// Timeout when the NOTIFY lock of the server was not had within 200 ms (congested).
pub(crate) async fn notify(session: &Session, channel: &str) -> Result<()> {
    let doing = "sending a probe";
    let notify = "select pg_catalog.set_config('lock_timeout', $2, true), pg_catalog.pg_notify($1, '')";
    let values: [(&(dyn ToSql + Sync), Type); 2] =
        [(&channel, Type::TEXT), (&NOTIFY_LOCK_TIMEOUT, Type::TEXT)];
    session
        .bounded(doing, session.client().query_typed(notify, &values))
        .await
        .map(drop)
}

const PROCESS: &str = "select pg_catalog.pg_backend_pid()";

/// The server process that answers on a session.
pub(crate) async fn process(session: &Session) -> Result<i32> {
    let row = session
        .bounded(
            "asking which process answers",
            session.client().query_typed_one(PROCESS, &[]),
        )
        .await?;
    Ok(row.get(0))
}
