//! One running pgevict: the front door of the library.

mod builder;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::{Client, GenericClient};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::clock::Moment;
use crate::cache::{Attached, CacheBuilder, Evict, NearCache, Shared};
use crate::config::Config;
use crate::emit::{self, Emitted, EmittingTransaction, Enqueued, Here, Queue, Switch};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::feed::Sync;
use crate::sink::{Subscription, stream};
use crate::status::{Listening, Meters, Status};
use crate::store::failure::failure;

pub use builder::Builder;

/// Longest wait for the tasks at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// A running instance; clones share it. Dropping the last one stops it without a farewell to the log, use
/// [`Pgevict::shutdown`] to leave cleanly.
#[derive(Clone)]
pub struct Pgevict(Arc<Inner>);

struct Inner {
    config: Config,
    instance_id: Arc<str>,
    switch: Switch,
    here: Here,
    queue: Queue,
    sync: Arc<Sync>,
    meters: Arc<Meters>,
    caches: Arc<Shared>,
    listening: watch::Receiver<Listening>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends handlers that do not end by themselves after `stop`.
    abandon: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Pgevict {
    /// Prepares an instance with these settings.
    pub fn builder(config: Config) -> Builder {
        Builder::new(config)
    }

    /// Id of this instance: as configured, or random per process.
    pub fn instance_id(&self) -> &str {
        &self.0.instance_id
    }

    /// Prepares a near cache that this instance keeps fresh.
    pub fn cache<V: Clone + Send + std::marker::Sync + 'static>(&self) -> CacheBuilder<V> {
        NearCache::builder(self.0.caches.clone())
    }

    /// Attaches a cache that the application has already: a `DashMap`, a `quick_cache::sync::Cache`, with feature
    /// `moka` a `moka::sync::Cache`, or whatever implements [`Evict`]. What it holds is dropped.
    pub fn attach<C: Evict>(&self, cache: C) -> Attached<C> {
        Attached::new(self.0.caches.clone(), cache)
    }

    /// Follows the events from now on, as they are applied.
    pub fn subscribe(&self) -> Subscription {
        let (sink, subscription) = stream(self.0.stop.clone());
        self.0.here.sinks.attach(|| Arc::new(sink));
        subscription
    }

    /// Emits an event in the transaction that `client` is in.
    ///
    /// `client` is a [`tokio_postgres::Transaction`], or a client whose statement then is a transaction of its own.
    ///
    /// # Errors
    /// Invalid when the event is refused, refused when the right to emit is missing, else what the database said.
    pub async fn emit(&self, client: &impl GenericClient, event: Event) -> Result<Emitted> {
        emit::emit(client, event, &self.0.instance_id, self.0.switch).await
    }

    /// Applies here what was emitted by a transaction that IS committed. Never call it before the commit.
    pub fn applied(&self, emitted: Emitted) {
        self.0.here.apply(emitted);
    }

    /// Emits an event where there is no transaction to emit in: a service that heard of a change elsewhere, a loader, a
    /// cron job. Events are gathered for `emit.window` (10 ms) and written in one transaction over a session of its own at
    /// `url`, in the order of the calls; after the commit they are applied here and the handle resolves. While the
    /// database is away they wait, up to `emit.bound` (10,000). What was accepted is written at least once, also when
    /// the handle is dropped, unless the handle says otherwise; [`Pgevict::shutdown`] writes what waits.
    ///
    /// A change of the database belongs into its own transaction: [`Pgevict::transaction`], or a watch. What is
    /// enqueued here and not yet written is lost with the process.
    ///
    /// # Errors
    /// At once: invalid (see [`Event::check`]); refused when the queue is full or this instance stopped. Through the
    /// handle: invalid when the server refuses this event, refused without the right to emit, unreachable when the
    /// instance stopped before the event was known to be written.
    pub fn enqueue(&self, event: Event) -> Result<Enqueued> {
        self.0.queue.enqueue(event)
    }

    /// Runs `work` in a transaction, commits, and applies at once what was emitted in it.
    ///
    /// # Errors
    /// Those of `work` (the transaction is rolled back), else those of begin and commit. After a failed commit
    /// nothing is applied here; if it did happen, the feed brings the events.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        client: &mut Client,
        work: impl AsyncFnOnce(&mut EmittingTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let begun = client.transaction().await;
        let begun = begun.map_err(|error| failure("beginning the transaction", error))?;
        let mut transaction = EmittingTransaction::new(begun, &self.0.instance_id, self.0.switch);
        let done = work(&mut transaction).await?;
        let committed = transaction.commit().await;
        for emitted in committed.map_err(|error| failure("committing the transaction", error))? {
            self.applied(emitted);
        }
        Ok(done)
    }

    /// Resolves when everything that was committed before this call has been applied here.
    ///
    /// # Errors
    /// Timeout when no fetch was complete within `deadline`. Refused when pgevict is disabled.
    pub async fn sync(&self, deadline: Duration) -> Result<()> {
        if self.0.switch == Switch::Off {
            return Err(Error::refused("sync: pgevict is disabled (enabled = false)"));
        }
        self.0.sync.sync(deadline).await
    }

    /// How this instance is.
    pub fn status(&self) -> Status {
        let staleness = self
            .0
            .here
            .position
            .as_of()
            .and_then(|as_of| as_of.age_at(Moment::now()));
        let listening = *self.0.listening.borrow();
        self.0.meters.status(listening, staleness)
    }

    /// Stops: no task is left, the log is no longer pinned. What was enqueued is written and handlers get what is queued for
    /// them, for 10 s at most; after that handlers are dropped where they are, and handles of events say so. A second call is fine.
    pub async fn shutdown(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        if timeout(SHUTDOWN_GRACE, self.0.tasks.wait()).await.is_err() {
            tracing::warn!("handlers or enqueued events did not end within the grace period and are dropped");
            self.0.abandon.cancel();
            drop(timeout(Duration::from_secs(1), self.0.tasks.wait()).await);
        }
    }
}
