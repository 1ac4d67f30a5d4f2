//! The writing side: events in the caller's own transaction, or enqueued where there is none.
//!
//! The event row and the wake belong to the transaction: both happen with its commit or not at all. What was
//! emitted may be applied here right after the commit, never before it: a reader could refill the old value.

mod queue;

use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_postgres::{GenericClient, Transaction};
use uuid::Uuid;

use crate::cache::position::Position;
use crate::error::Result;
use crate::event::{Announced, ENVELOPE_VERSION, Event, LoggedEvent};
use crate::sink::{Origin, Sinks};
use crate::snapshot::Xid;
use crate::store;

pub use queue::Enqueued;
pub(crate) use queue::{Queue, Writer};

/// Whether emitting does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    /// `enabled = false`: emits are no-ops that say so.
    Off,
}

/// Where own events are applied: the caches and the memory of this instance.
#[derive(Debug, Clone)]
pub(crate) struct Here {
    pub(crate) position: Arc<Position>,
    pub(crate) sinks: Arc<Sinks>,
}

impl Here {
    /// Applies what was emitted by a transaction that IS committed.
    pub(crate) fn apply(&self, emitted: Emitted) {
        let Emitted(Some(event)) = emitted else {
            return;
        };
        self.sinks.with(|sinks| {
            if event.empties_everything() {
                self.position.void();
            }
            for sink in sinks {
                sink.apply(std::slice::from_ref(&event), Origin::Own);
            }
        });
    }
}

/// An event that was written but whose transaction may not be committed yet.
///
/// Hand it to [`Pgevict::applied`](crate::Pgevict::applied) after the commit: this instance then does not wait
/// for the feed. Forgetting it costs only latency.
#[derive(Debug, Clone)]
#[must_use = "hand it to `applied` after the commit, or drop it on purpose"]
pub struct Emitted(Option<Arc<LoggedEvent>>);

impl Emitted {
    /// The transaction that wrote it; `None` when pgevict is disabled and nothing was written.
    pub fn xid(&self) -> Option<Xid> {
        self.0.as_ref().map(|event| event.xid)
    }

    /// Of an event that this transaction wrote.
    fn by(xid: Xid, event: Event) -> Self {
        Self(Some(Arc::new(LoggedEvent {
            xid,
            id: 0,
            uuid: Uuid::nil(),
            version: ENVELOPE_VERSION,
            announced: Announced::Silent,
            created_at: SystemTime::now(),
            event,
        })))
    }

    /// Nothing was written, since pgevict is disabled.
    fn nothing(event: &Event) -> Self {
        tracing::debug!(kind = event.kind(), "pgevict is disabled: nothing is emitted");
        Self(None)
    }
}

/// Emits in the transaction that `client` is in; without one the statement is its own transaction.
pub(crate) async fn emit(
    client: &impl GenericClient,
    event: Event,
    source: &str,
    switch: Switch,
) -> Result<Emitted> {
    if switch == Switch::Off {
        return Ok(Emitted::nothing(&event));
    }
    event.check()?;
    let xid = store::emit::emit(client, &event, Some(source)).await?;
    Ok(Emitted::by(xid, event))
}

/// A transaction that remembers what was emitted in it; a [`tokio_postgres::Transaction`] otherwise.
pub struct EmittingTransaction<'a> {
    transaction: Transaction<'a>,
    source: &'a str,
    switch: Switch,
    emitted: Vec<Emitted>,
}

impl<'a> EmittingTransaction<'a> {
    pub(crate) fn new(transaction: Transaction<'a>, source: &'a str, switch: Switch) -> Self {
        Self {
            transaction,
            source,
            switch,
            emitted: Vec::new(),
        }
    }

    /// Emits an event with this transaction.
    ///
    /// # Errors
    /// Invalid when the event is refused (size, U+0000), refused when the right to emit is missing. Either way
    /// the transaction is aborted by the server: roll back.
    pub async fn emit(&mut self, event: Event) -> Result<()> {
        let emitted = emit(&self.transaction, event, self.source, self.switch).await?;
        self.emitted.push(emitted);
        Ok(())
    }

    pub(crate) async fn commit(self) -> Result<Vec<Emitted>, tokio_postgres::Error> {
        self.transaction.commit().await?;
        Ok(self.emitted)
    }
}

impl<'a> Deref for EmittingTransaction<'a> {
    type Target = Transaction<'a>;
    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}
