//! Calls of the emitting functions.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use crate::error::Result;
use crate::event::Event;
use crate::snapshot::Xid;
use crate::store::failure::failure;

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
