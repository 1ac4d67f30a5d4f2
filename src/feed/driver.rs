//! The loop of the feed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_postgres::types::PgLsn;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cache::clock::Moment;
use crate::cache::position::Position;
use crate::config::FeedConfig;
use crate::error::{Error, Result};
use crate::event::LoggedEvent;
use crate::feed::Sync;
use crate::feed::pace::{Bucket, Rhythm, poll_pause};
use crate::feed::tally::{Page, Tally};
use crate::feed::verdict::{Beats, Verdict, judge, must_be_direct};
use crate::sink::{Origin, Reset, Sinks};
use crate::snapshot::{Cursor, Life, PageSize};
use crate::status::{Cause, Listening, Meters};
use crate::store::epoch;
use crate::store::event::{Fetch, Fetched, Route};
use crate::store::session::{Connector, Purpose, Session};
use crate::wake::{Backoff, MissedWakes, Signal, WakeVerdict};

/// Tries of one fetch to get a good proof (no epoch, lost registration, reset) before the session is given up.
const PROOF_TRIES: u32 = 6;

/// What the feed shares with the rest of its instance.
pub(crate) struct Shared {
    pub(crate) position: Arc<Position>,
    pub(crate) sinks: Arc<Sinks>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) sync: Arc<Sync>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) listening: watch::Receiver<Listening>,
    /// The fetch session, for the probes of the LISTEN path.
    pub(crate) session: watch::Sender<Option<Arc<Session>>>,
    /// Random for each process.
    pub(crate) process: Uuid,
    /// Why the first session could not be had, for whoever waits for readiness.
    pub(crate) trouble: watch::Sender<Option<Arc<Error>>>,
}

/// Owner of the cursor.
pub(crate) struct Feed {
    connector: Connector,
    settings: FeedConfig,
    max_staleness: Duration,
    instance_id: Arc<str>,
    process: Uuid,
    backoff: Backoff,
    shared: Shared,
    cursor: Option<Cursor>,
    known: Option<Life>,
    /// A reset that the sinks have not been told of: they are once the cursor stands at the head.
    owed: Option<Reset>,
    beats: Beats,
    beat_due: Instant,
    missed: MissedWakes,
    pages: PageSize,
    bucket: Bucket,
    /// The outstanding target's first fetch; kept across sessions with the cursor's pages.
    target: Target,
    /// Sync requests that a complete fetch has answered.
    answered: u64,
    /// When the last complete fetch was sent, and how long it took.
    last: Option<(Instant, Duration)>,
}

/// The fetch that pinned a target: what a complete fetch proves, it proves as of then.
#[derive(Debug, Clone, Copy)]
struct Target {
    as_of: Moment,
    sent: Instant,
    request: u64,
}

impl Feed {
    pub(crate) fn new(
        connector: Connector,
        settings: FeedConfig,
        max_staleness: Duration,
        instance_id: Arc<str>,
        backoff: Backoff,
        shared: Shared,
    ) -> Self {
        let now = Instant::now();
        let pages = PageSize::new(settings.page_min, settings.page_max);
        Self {
            connector,
            settings,
            max_staleness,
            instance_id,
            process: shared.process,
            backoff,
            shared,
            cursor: None,
            known: None,
            owed: None,
            beats: Beats::default(),
            beat_due: now,
            missed: MissedWakes::default(),
            pages,
            bucket: Bucket::new(now),
            target: Target {
                as_of: Moment::now(),
                sent: now,
                request: 0,
            },
            answered: 0,
            last: None,
        }
    }

    /// Runs until stopped; then withdraws the heartbeat.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let lost = tokio::select! {
                () = stop.cancelled() => break,
                lost = self.session() => lost,
            };
            self.shared.session.send_replace(None);
            self.missed.forget();
            let cause = Cause::of(&lost, Cause::Unreachable);
            self.shared.meters.fetch_lost(Some(cause));
            let pause = self.backoff.pause(fastrand::f64());
            tracing::warn!(
                cause = cause.as_str(),
                error = %lost,
                pause_ms = pause.as_millis() as u64,
                "fetch session lost; reconnecting"
            );
            self.shared.trouble.send_replace(Some(Arc::new(lost)));
            let mut listening = self.shared.listening.clone();
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
                // The server is back: the LISTEN session got through.
                Ok(_) = listening.wait_for(|listening| *listening == Listening::Proved), if !self.proved() => {}
            }
        }
        self.leave().await;
    }

    fn proved(&self) -> bool {
        *self.shared.listening.borrow() == Listening::Proved
    }

    async fn leave(&self) {
        let Some(session) = self.shared.session.send_replace(None) else {
            return;
        };
        let leaving = epoch::leave(&session, &self.instance_id, self.process);
        if !matches!(timeout(Duration::from_secs(1), leaving).await, Ok(Ok(()))) {
            tracing::debug!("could not withdraw the heartbeat; it lapses by itself");
        }
    }

    /// One session, from the connect to its loss.
    async fn session(&mut self) -> Error {
        let session = match self.connector.open(Purpose::Fetch).await {
            Ok(session) => Arc::new(session),
            Err(error) => return error,
        };
        if session.keeps_unlogged() && self.known.is_some() {
            // The server may have crashed meanwhile, and its epoch would not show it.
            self.reset(Reset::Epoch);
        }
        let ended = session.clone();
        self.shared.session.send_replace(Some(session.clone()));
        let served = tokio::select! {
            biased;
            served = self.serve(&session) => served,
            () = ended.ended() => Ok(()),
        };
        match served {
            Err(error) => error,
            Ok(()) => Error::unreachable("the fetch session was closed"),
        }
    }

    async fn serve(&mut self, session: &Session) -> Result<()> {
        let mut fetch = Fetch::default();
        loop {
            self.look(session, &mut fetch).await?;
            self.backoff.reset();
            self.shared.meters.fetch_lost(None);
            self.shared.trouble.send_replace(None);
            self.wait(session).await?;
        }
    }

    /// Waits for a reason to look; sends the heartbeat when it is due.
    async fn wait(&mut self, session: &Session) -> Result<()> {
        let (sent, took) = self.last.unwrap_or((Instant::now(), Duration::ZERO));
        let mut requests = self.shared.sync.requests();
        let answered = self.answered;
        let mut listening = self.shared.listening.clone();
        listening.mark_unchanged();
        loop {
            let now = Instant::now();
            if now >= self.beat_due {
                self.beat(session).await?;
            }
            let rhythm = self.rhythm(now);
            let poll_at = sent + took + poll_pause(rhythm, took, &self.settings, self.max_staleness);
            let missed_at = self.missed.due().unwrap_or(poll_at + self.settings.poll);
            let signal = self.shared.signal.clone();
            tokio::select! {
                () = signal.look() => return Ok(()),
                _ = requests.wait_for(|request| *request > answered) => return Ok(()),
                // An error: the LISTEN task is gone, and nothing will change any more.
                Ok(()) = listening.changed() => self.missed.forget(),
                () = sleep_until(poll_at.into()) => return Ok(()),
                () = sleep_until(missed_at.into()) => {
                    if self.shared.signal.heard().is_some_and(|heard| heard >= sent) {
                        self.missed.heard();
                    }
                }
                () = sleep_until(self.beat_due.into()) => {}
            }
        }
    }

    /// How the wake path stands.
    fn rhythm(&mut self, now: Instant) -> Rhythm {
        let meters = &self.shared.meters;
        let missing = self.missed.verdict(now) == WakeVerdict::Missing;
        meters.missed_wakes.store(self.missed.total(), Ordering::Relaxed);
        if meters.missing_wakes.swap(missing, Ordering::Relaxed) != missing {
            tracing::warn!(missing, total = self.missed.total(), "wakes for announced events");
        }
        let settled = match *self.shared.listening.borrow() {
            Listening::Proved => !missing && !meters.congested.load(Ordering::Relaxed),
            // Nothing will arrive, and that is meant.
            Listening::Off => true,
            Listening::Connecting | Listening::Lost(_) => false,
        };
        if settled {
            Rhythm::Settled
        } else {
            Rhythm::Unproved
        }
    }

    async fn beat(&mut self, session: &Session) -> Result<()> {
        let Some(cursor) = &self.cursor else {
            return Ok(());
        };
        self.beats.sent += 1;
        let sequence = self.beats.sent;
        epoch::beat(session, &self.instance_id, self.process, sequence, cursor.base()).await?;
        self.beats.acknowledged = Some((sequence, Moment::now()));
        self.beat_due = Instant::now() + self.settings.heartbeat;
        Ok(())
    }

    /// One complete fetch: all pages up to the snapshot of the first. Pages left by a lost session come before.
    async fn look(&mut self, session: &Session, fetch: &mut Fetch) -> Result<()> {
        must_be_direct(session.keeps_unlogged(), session.is_lent())?;
        while let Err(pause) = self.bucket.take(Instant::now()) {
            sleep(pause).await;
        }
        let mut left_over = self.cursor.as_ref().is_some_and(|cursor| cursor.page().is_some());
        let mut tally = Tally::default();
        while self.page(session, fetch, &mut tally).await? == Page::More || std::mem::take(&mut left_over) {
            // A long catch-up is no sign of death.
            if Instant::now() >= self.beat_due {
                self.beat(session).await?;
            }
        }
        // Whoever waits for this fetch may count on the log being pinned. When it is due, too, not only in `wait`: a
        // session that can read but not write has not worked, and its end must not be followed by the shortest pause.
        if self.beats.acknowledged.is_none() || Instant::now() >= self.beat_due {
            self.beat(session).await?;
        }
        self.shared.sync.complete(self.answered);
        Ok(())
    }

    /// Fetches, judges and applies one page.
    async fn page(&mut self, session: &Session, fetch: &mut Fetch, tally: &mut Tally) -> Result<Page> {
        let route = if self.proved() {
            Route::Direct
        } else {
            Route::Unproved
        };
        for _ in 0..PROOF_TRIES {
            let cursor = self.cursor.as_ref();
            if cursor.is_none_or(|cursor| cursor.page().is_none()) {
                self.target = Target {
                    as_of: Moment::now(),
                    sent: Instant::now(),
                    request: *self.shared.sync.requests().borrow(),
                };
            }
            let limit = self.pages.get();
            let fetched = fetch
                .run(
                    session,
                    route,
                    cursor,
                    i64::from(limit),
                    &self.instance_id,
                    self.process,
                )
                .await
                .inspect_err(|error| {
                    if error.is_timeout() {
                        self.pages.too_large();
                    }
                })?;
            let base = cursor.map(Cursor::base);
            match judge(
                &fetched.proof,
                self.known.as_ref(),
                base,
                &self.beats,
                Moment::now(),
            ) {
                Verdict::Good(known) => {
                    self.known = Some(known);
                    return Ok(self.advance(known, fetched, tally));
                }
                Verdict::Establish => drop(epoch::establish(session).await?),
                Verdict::Register => self.beat(session).await?,
                Verdict::Reset(cause) => self.reset(cause),
            }
        }
        Err(Error::unreachable("no fetch with a good proof could be had"))
    }

    /// Moves the cursor past a proved page, applies it, and publishes when it was the last.
    fn advance(&mut self, life: Life, fetched: Fetched, tally: &mut Tally) -> Page {
        let full = self.pages.learn(fetched.events.len());
        let last = fetched.events.last().map(|event| (event.xid, event.id));
        let next = match self.cursor.take() {
            Some(cursor) => cursor.after_fetch(fetched.proof.snapshot, last, full),
            None => Cursor::new(fetched.proof.snapshot),
        };
        let complete = next.page().is_none();
        self.cursor = Some(next);
        tally.count(&fetched.events);
        if let Some(newest) = fetched.events.last()
            && let Ok(lag) = fetched.proof.clock.duration_since(newest.created_at)
        {
            self.shared.meters.lag(lag);
        }
        self.apply(fetched.events, complete.then_some((life, fetched.proof.lsn)));
        if !complete {
            return Page::More;
        }
        self.finish(std::mem::take(tally));
        Page::Last
    }

    /// Applies a page and, when it was the last one, publishes the cursor: one step for whoever attaches a sink.
    ///
    /// A reset is told here, by the fetch that found the head: what is told of it reads the database then, and
    /// must be brought everything that it cannot have read.
    fn apply(&mut self, events: Vec<LoggedEvent>, complete: Option<(Life, PgLsn)>) {
        let position = &self.shared.position;
        let events: Vec<_> = events.into_iter().map(Arc::new).collect();
        let owed = self.owed.take();
        self.shared.sinks.with(|sinks| {
            if let Some(cause) = owed {
                for sink in sinks {
                    sink.reset(cause);
                }
            }
            if !events.is_empty() {
                if events.iter().any(|event| event.empties_everything()) {
                    position.void();
                }
                for sink in sinks {
                    sink.apply(&events, Origin::Feed);
                }
            }
            if let (Some((life, lsn)), Some(cursor)) = (complete, &self.cursor) {
                // The base moves with every transaction of the cluster; share the old one when it did not.
                let cursor = match position.cursor() {
                    Some(published) if *published == *cursor.base() => published,
                    _ => Arc::new(cursor.base().clone()),
                };
                position.publish_at(cursor.clone(), self.target.as_of, life, lsn);
                for sink in sinks {
                    sink.published(&cursor);
                }
            }
        });
    }

    fn finish(&mut self, tally: Tally) {
        let now = Instant::now();
        let Target { sent, request, .. } = self.target;
        let since = self.last.map(|(sent, _)| sent);
        let heard = self
            .shared
            .signal
            .heard()
            .is_some_and(|heard| since.is_none_or(|since| heard >= since));
        // Without a LISTEN session nobody expects wakes.
        if self.proved() && since.is_some() {
            self.missed.fetched(tally.announced, heard, now);
        }
        let took = now - sent;
        self.last = Some((sent, took));
        let meters = &self.shared.meters;
        meters.fetches.fetch_add(1, Ordering::Relaxed);
        meters.events.fetch_add(tally.events, Ordering::Relaxed);
        meters.wakes.store(self.shared.signal.wakes(), Ordering::Relaxed);
        if tally.pages > 1 {
            meters.caught_up(tally.events, took);
            tracing::info!(
                events = tally.events,
                pages = tally.pages,
                took_ms = took.as_millis() as u64,
                "caught up"
            );
        }
        self.answered = request;
    }

    /// All that is held is void from now on: start at the head again, and tell the sinks then.
    fn reset(&mut self, cause: Reset) {
        tracing::warn!(cause = cause.as_str(), "reset: everything held so far is dropped");
        self.shared.meters.reset(cause.as_str());
        if cause == Reset::Heartbeat {
            // Whatever wrote our row may have put it ahead of us for ever.
            self.process = Uuid::new_v4();
        }
        self.cursor = None;
        self.known = None;
        self.beats.acknowledged = None;
        self.beat_due = Instant::now();
        self.owed.get_or_insert(cause);
        self.shared.sinks.with(|_| self.shared.position.withdraw());
    }
}
