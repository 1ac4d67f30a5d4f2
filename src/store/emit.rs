//! Calls of the emitting functions.

use serde_json::{Value, json};
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use crate::error::Result;
use crate::event::Event;
use crate::snapshot::Xid;
use crate::store::failure::failure;
use crate::store::session::Session;

/// Writes the event in the caller's transaction and announces it; returns the top-level transaction id.
pub(crate) async fn emit(client: &impl GenericClient, event: &Event, source: Option<&str>) -> Result<Xid> {
    let source = event.source.as_deref().or(source);
    let sent = if event.flush {
        client
            .query_typed_one("select pgevict.flush(source => $1)", &[(&source, Type::TEXT)])
            .await
    } else {
        let keys: Vec<_> = event.keys.iter().map(|key| key.as_str()).collect();
        let tags: Vec<_> = event.tags.iter().map(|tag| tag.as_str()).collect();
        let prefixes: Vec<_> = event.prefixes.iter().map(|prefix| prefix.as_str()).collect();
        let changes = event.changes.as_ref().map(Json);
        client
            .query_typed_one(
                "select pgevict.emit($1, $2, $3, $4, $5, $6, $7, $8)",
                &[
                    (&keys, Type::TEXT_ARRAY),
                    (&tags, Type::TEXT_ARRAY),
                    (&prefixes, Type::TEXT_ARRAY),
                    (&event.kind, Type::TEXT),
                    (&event.entity_type, Type::TEXT),
                    (&event.entity_id, Type::TEXT),
                    (&changes, Type::JSONB),
                    (&source, Type::TEXT),
                ],
            )
            .await
    };
    let row = sent.map_err(|error| failure("emitting", error))?;
    row.try_get(0).map_err(|error| failure("emitting", error))
}

/// Begins with settings of its own, since the session may be a pooler's. What misses its deadline here is given up by the
/// server too: a statement that goes on would write what is written again.
fn begin(session: &Session) -> String {
    let deadline_ms = session.statement_timeout().as_millis().max(1);
    format!(
        "begin isolation level read committed read write; set local search_path = pg_catalog, pg_temp; \
         set local jit = off; set local statement_timeout = {deadline_ms}; \
         set local idle_in_transaction_session_timeout = {deadline_ms}"
    )
}

/// In the order of the array. A key in it holds no U+0000, which jsonb cannot.
const EMIT_ALL: &str = "
select pg_current_xact_id(),
       count(case when e.flush then pgevict.flush(source => e.source)
             else pgevict.emit(e.keys, e.tags, e.prefixes, e.type, e.entity_type, e.entity_id, e.changes, e.source) end)
  from jsonb_to_recordset($1) as e (flush boolean, keys text[], tags text[], prefixes text[], type text,
       entity_type text, entity_id text, changes jsonb, source text)";

/// Writes these events in one transaction of its own, in this order; returns its id after the commit.
///
/// # Errors
/// After one of unreachable and timeout it may have been committed all the same.
pub(crate) async fn emit_all<'a>(
    session: &Session,
    events: impl Iterator<Item = &'a Event>,
    source: &str,
) -> Result<Xid> {
    let doing = "emitting what was enqueued";
    let rows = Json(Value::Array(events.map(|event| row_of(event, source)).collect()));
    let client = session.client();
    session
        .bounded(doing, client.batch_execute(&begin(session)))
        .await?;
    let values = [(&rows as _, Type::JSONB)];
    let written = session
        .bounded(doing, client.query_typed_one(EMIT_ALL, &values))
        .await;
    let end = if written.is_ok() { "commit" } else { "rollback" };
    let ended = session.bounded(doing, client.batch_execute(end)).await;
    let row = written?;
    ended?;
    row.try_get(0).map_err(|error| failure(doing, error))
}

fn row_of(event: &Event, source: &str) -> Value {
    let keys: Vec<_> = event.keys.iter().map(|key| key.as_str()).collect();
    let tags: Vec<_> = event.tags.iter().map(|tag| tag.as_str()).collect();
    let prefixes: Vec<_> = event.prefixes.iter().map(|prefix| prefix.as_str()).collect();
    json!({
        "flush": event.flush,
        "keys": keys,
        "tags": tags,
        "prefixes": prefixes,
        "type": event.kind,
        "entity_type": event.entity_type,
        "entity_id": event.entity_id,
        "changes": event.changes,
        "source": event.source.as_deref().unwrap_or(source),
    })
}
