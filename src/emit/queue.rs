//! Emitting where there is no transaction to emit in: events are gathered for a short while and written together.
//!
//! ```text
//!   enqueue --full, stopped, invalid--> error to the caller
//!      |
//!      v     first event + window, or a full batch
//!    queue ------------------------------------------> one transaction --committed--> applied here, handles told
//!                                                       |  ^        |
//!                     unreachable, deadline: backoff ---+  |        +-- refused: error to each caller
//!                                                          +-- halves --+-- otherwise: error, to the one caller left
//! ```
//!
//! At least once: when the link is lost during COMMIT the events are written again. They commute, so that is harmless to
//! caches; a handler may be called twice.
//!
//! What was accepted is written, or its handle gets an error: at a stop the rest has the grace period to be written.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Emitted, Here, Switch};
use crate::config::EmitConfig;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::snapshot::Xid;
use crate::status::Meters;
use crate::store::emit::emit_all;
use crate::store::session::{Connector, Purpose, Session};
use crate::wake::Backoff;

/// Most events of one transaction: as many as a slow server writes well within the deadline of a statement.
const MAX_EVENTS: usize = 1_000;

/// Beyond so many bytes of keys, tags and prefixes no further event joins a transaction.
const MAX_BYTES: usize = 8 << 20;

/// An event that was accepted: resolves when its transaction is committed, to what
/// [`Pgevict::emit`](crate::Pgevict::emit) gives, or to the error that kept it from being written. It has been applied
/// here by then. May be dropped: the event is written all the same.
#[derive(Debug)]
pub struct Enqueued(Handle);

#[derive(Debug)]
enum Handle {
    Waiting(oneshot::Receiver<Result<Emitted>>),
    Disabled(Emitted),
}

impl Future for Enqueued {
    type Output = Result<Emitted>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Handle::Waiting(told) => {
                let told = ready!(Pin::new(told).poll(context));
                Poll::Ready(
                    told.unwrap_or_else(|_| Err(Error::unreachable("enqueued, but its runtime has ended"))),
                )
            }
            Handle::Disabled(emitted) => Poll::Ready(Ok(emitted.clone())),
        }
    }
}

/// The caller's end.
#[derive(Debug)]
pub(crate) struct Queue {
    switch: Switch,
    bound: usize,
    places: Arc<Semaphore>,
    sender: mpsc::UnboundedSender<Waiting>,
    meters: Arc<Meters>,
}

/// An event on its way, with its place in the bound, which it keeps until its caller is told.
#[derive(Debug)]
pub(crate) struct Waiting {
    event: Event,
    told: oneshot::Sender<Result<Emitted>>,
    _place: OwnedSemaphorePermit,
}

impl Queue {
    /// The two ends; without a [`Writer`] that runs, what was accepted only waits.
    pub(crate) fn new(
        settings: &EmitConfig,
        switch: Switch,
        meters: Arc<Meters>,
    ) -> (Self, mpsc::UnboundedReceiver<Waiting>) {
        let (sender, waiting) = mpsc::unbounded_channel();
        let places = Arc::new(Semaphore::new(settings.bound));
        let queue = Self {
            switch,
            bound: settings.bound,
            places,
            sender,
            meters,
        };
        (queue, waiting)
    }

    /// Accepts the event, or says at once why not.
    pub(crate) fn enqueue(&self, event: Event) -> Result<Enqueued> {
        if self.switch == Switch::Off {
            return Ok(Enqueued(Handle::Disabled(Emitted::nothing(&event))));
        }
        event.check()?;
        let stopped = || Error::refused("enqueue: this instance is stopped");
        if self.sender.is_closed() {
            return Err(stopped());
        }
        let place = self.places.clone().try_acquire_owned().map_err(|_| {
            Error::refused(format!(
                "enqueue: {} events wait to be written already (emit.bound): the database is away or slower than what is \
                 enqueued; try again later, or raise emit.bound",
                self.bound
            ))
        })?;
        let (told, handle) = oneshot::channel();
        self.meters.queued.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting {
            event,
            told,
            _place: place,
        };
        if self.sender.send(waiting).is_err() {
            self.meters.queued.fetch_sub(1, Ordering::Relaxed);
            return Err(stopped());
        }
        Ok(Enqueued(Handle::Waiting(handle)))
    }
}

/// What an error of writing a batch calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The database is away: the same again, after a pause.
    Again,
    /// None of them would fare better.
    Refused,
    /// One of them may be the cause.
    Narrow,
}

fn fate(error: &Error) -> Fate {
    let passes = matches!(error.sqlstate(), Some(code) if code == "25006" || code.starts_with("40"));
    if passes || error.is_unreachable() || error.is_timeout() || error.is_standby() {
        Fate::Again
    } else if error.is_refused() {
        Fate::Refused
    } else {
        Fate::Narrow
    }
}

/// The writing end: one task, one session, which it opens when there is something to write.
pub(crate) struct Writer {
    pub(crate) waiting: mpsc::UnboundedReceiver<Waiting>,
    pub(crate) connector: Connector,
    pub(crate) settings: EmitConfig,
    pub(crate) backoff: Backoff,
    pub(crate) instance_id: Arc<str>,
    pub(crate) here: Here,
    pub(crate) meters: Arc<Meters>,
    /// Time for what waits at a stop.
    pub(crate) grace: Duration,
}

impl Writer {
    /// Runs until stopped and everything is written, or given up after the grace period or when abandoned.
    pub(crate) async fn run(mut self, stop: CancellationToken, abandon: CancellationToken) {
        let mut batches = Batches::default();
        let mut session = None;
        let hurried = stop.clone();
        let grace = self.grace;
        let given_up = async {
            tokio::select! {
                () = abandon.cancelled() => {}
                () = async { stop.cancelled().await; sleep(grace).await } => {}
            }
        };
        tokio::select! {
            () = given_up => {}
            () = self.write_all(&mut batches, &mut session, &hurried) => return,
        }
        self.waiting.close();
        while let Ok(waiting) = self.waiting.try_recv() {
            batches.0.push_back(vec![waiting]);
        }
        let left: Vec<_> = batches.0.into_iter().flatten().collect();
        tracing::error!(
            events = left.len(),
            "stopped before what was enqueued could be written"
        );
        let error = Error::unreachable("stopped before the event was known to be written");
        self.fail(left, error);
    }

    /// Window by window; ends when stopped and nothing waits.
    async fn write_all(
        &mut self,
        batches: &mut Batches,
        session: &mut Option<Session>,
        stop: &CancellationToken,
    ) {
        loop {
            let first = tokio::select! {
                biased;
                () = stop.cancelled(), if !self.waiting.is_closed() => {
                    self.waiting.close();
                    continue;
                }
                first = self.waiting.recv() => first,
            };
            let Some(first) = first else {
                return;
            };
            self.gather(batches, first, stop).await;
            while !batches.0.is_empty() {
                self.write_first(batches, session).await;
            }
        }
    }

    /// Puts `first` and what comes within the window into batches that are small enough.
    async fn gather(&mut self, batches: &mut Batches, first: Waiting, stop: &CancellationToken) {
        let until = Instant::now() + self.settings.window;
        let mut size = size_of(&first.event);
        batches.0.push_back(vec![first]);
        let batch = &mut batches.0[0];
        while batch.len() < MAX_EVENTS && size < MAX_BYTES {
            let next = tokio::select! {
                biased;
                // What is there already still joins.
                next = timeout_at(until, self.waiting.recv()) => next,
                () = stop.cancelled(), if !self.waiting.is_closed() => {
                    self.waiting.close();
                    continue;
                }
            };
            let Ok(Some(next)) = next else {
                return;
            };
            size += size_of(&next.event);
            batch.push(next);
        }
    }

    /// One try to write the first batch. It leaves the list when its callers were told, so a try that is dropped loses
    /// nobody.
    async fn write_first(&mut self, batches: &mut Batches, session: &mut Option<Session>) {
        let Some(batch) = batches.0.front() else {
            return;
        };
        let error = match self.write(batch, session).await {
            Ok(xid) => {
                self.backoff.reset();
                let batch = batches.0.pop_front().unwrap_or_default();
                return self.committed(batch, xid);
            }
            Err(error) => error,
        };
        match fate(&error) {
            Fate::Again => {
                *session = None;
                if error.is_timeout() {
                    // Half as much may be within the deadline.
                    batches.halve_first();
                }
                let pause = self.backoff.pause(fastrand::f64());
                tracing::warn!(
                    %error,
                    queued = self.meters.queued.load(Ordering::Relaxed),
                    pause_ms = pause.as_millis() as u64,
                    "what was enqueued is not written yet"
                );
                sleep(pause).await;
            }
            Fate::Narrow if batch.len() > 1 => batches.halve_first(),
            Fate::Narrow | Fate::Refused => {
                let batch = batches.0.pop_front().unwrap_or_default();
                tracing::error!(%error, events = batch.len(), "what was enqueued cannot be written");
                self.fail(batch, error);
            }
        }
    }

    async fn write(&self, batch: &[Waiting], session: &mut Option<Session>) -> Result<Xid> {
        if session.as_ref().is_none_or(Session::is_closed) {
            *session = None;
            let opened = self.connector.open(Purpose::Emit).await;
            // Nothing accepted is given up for what may pass: a password that is being changed, a standby to be promoted.
            let opened = opened.map_err(|error| {
                let message = error.to_string();
                Error::unreachable(message).because(error)
            })?;
            *session = Some(opened);
        }
        let Some(session) = session else {
            return Err(Error::unreachable("emitting what was enqueued: no session"));
        };
        emit_all(
            session,
            batch.iter().map(|waiting| &waiting.event),
            &self.instance_id,
        )
        .await
    }

    fn committed(&self, batch: Vec<Waiting>, xid: Xid) {
        for Waiting { event, told, .. } in batch {
            let emitted = Emitted::by(xid, event);
            self.here.apply(emitted.clone());
            self.meters.queued.fetch_sub(1, Ordering::Relaxed);
            self.meters.published.fetch_add(1, Ordering::Relaxed);
            // Who dropped the handle does not want to know.
            drop(told.send(Ok(emitted)));
        }
    }

    fn fail(&self, batch: Vec<Waiting>, error: Error) {
        let error = Arc::new(error);
        for Waiting { told, .. } in batch {
            self.meters.queued.fetch_sub(1, Ordering::Relaxed);
            self.meters.unpublished.fetch_add(1, Ordering::Relaxed);
            drop(told.send(Err(Error::shared(&error))));
        }
    }
}

/// What is to be written, in order, each a transaction.
#[derive(Debug, Default)]
struct Batches(VecDeque<Vec<Waiting>>);

impl Batches {
    /// Two transactions instead of the first, in the same order.
    fn halve_first(&mut self) {
        let Some(mut first) = self.0.pop_front() else {
            return;
        };
        let second = first.split_off(first.len().div_ceil(2));
        if !second.is_empty() {
            self.0.push_front(second);
        }
        self.0.push_front(first);
    }
}

fn size_of(event: &Event) -> usize {
    let keys = event.keys.iter().map(|key| key.as_str().len());
    let tags = event.tags.iter().map(|tag| tag.as_str().len());
    let prefixes = event.prefixes.iter().map(|prefix| prefix.as_str().len());
    keys.chain(tags).chain(prefixes).sum()
}
