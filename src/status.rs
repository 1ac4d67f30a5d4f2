//! What an instance knows about its own health: counters and states, measured through the real path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::Error;

/// Why a session was lost, or why an instance is degraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// No connection could be opened.
    Unreachable,
    /// The server or the link closed the session.
    Closed,
    /// The session is open but a probe sent over another one was not heard: half-open link.
    HalfOpen,
    /// `listen_url` leads through a pooler that does not keep the session.
    Pooler,
    /// `url` and `listen_url` lead to different servers or databases.
    TwoServers,
    /// The server is a standby.
    Standby,
    /// The server refused: password, database, rights, version or a missing installation.
    Refused,
    /// Others hold the server's NOTIFY lock for over 200 ms.
    Congested,
    /// Events arrived by polling that should have been announced by a wake.
    MissedWakes,
    /// A statement missed its deadline.
    Deadline,
}

impl Cause {
    /// The cause that an error of a session stands for; `otherwise` when its class says no more.
    pub(crate) fn of(error: &Error, otherwise: Self) -> Self {
        if error.is_standby() {
            Self::Standby
        } else if error.is_refused() || error.is_invalid() {
            Self::Refused
        } else if error.is_timeout() {
            Self::Deadline
        } else {
            otherwise
        }
    }

    /// The cause in one word, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Pooler => "pooler",
            Self::TwoServers => "two_servers",
            Self::Standby => "standby",
            Self::Refused => "refused",
            Self::Congested => "congested",
            Self::MissedWakes => "missed_wakes",
            Self::Deadline => "deadline",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State of the LISTEN path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listening {
    /// Not yet connected, or connecting again.
    Connecting,
    /// It heard a wake or answered a probe lately.
    Proved,
    /// Lost; polling carries the events meanwhile.
    Lost(Cause),
    /// By the setting `wake.listen`: polling carries the events.
    Off,
}

/// State of an instance at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// The LISTEN path.
    pub listening: Listening,
    /// Why events may arrive later than the wake path would bring them; `None` when all is well.
    pub degraded: Option<Cause>,
    /// How long ago the instance last proved that it had seen everything; `None` before the first proof.
    pub staleness: Option<Duration>,
    /// LISTEN sessions lost, by cause.
    pub reconnects: BTreeMap<Cause, u64>,
    /// Wakes heard.
    pub wakes: u64,
    /// Probes sent.
    pub probes: u64,
    /// Events that no wake announced in time.
    pub missed_wakes: u64,
    /// Fetches completed.
    pub fetches: u64,
    /// Events applied from the log.
    pub events: u64,
    /// From emit to fetch, for the newest event of the last fetch that brought any, by the database's clock.
    pub lag: Option<Duration>,
    /// Resets, by cause.
    pub resets: BTreeMap<&'static str, u64>,
    /// Catch-ups of more than one page.
    pub catch_ups: u64,
    /// Events and duration of the last catch-up of more than one page.
    pub last_catch_up: Option<(u64, Duration)>,
    /// This instance is the warden: it prunes the log and checks the watches for the fleet.
    pub warden: bool,
    /// Events that this instance pruned.
    pub pruned: u64,
    /// Enqueued events that wait to be written.
    pub queued: u64,
    /// Enqueued events whose transaction was committed.
    pub published: u64,
    /// Enqueued events that could not be written; their handles say why.
    pub unpublished: u64,
    /// Watches that were not whole at the last check; `None` when this instance is not the warden, which checks them.
    pub watches_not_whole: Option<u64>,
    /// Handlers that failed or panicked, by pattern.
    pub handler_errors: BTreeMap<String, u64>,
}

impl Status {
    /// LISTEN sessions lost so far, whatever the cause.
    pub fn reconnects_total(&self) -> u64 {
        self.reconnects.values().sum()
    }
}

/// The counters behind [`Status`].
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) wakes: AtomicU64,
    pub(crate) probes: AtomicU64,
    pub(crate) missed_wakes: AtomicU64,
    pub(crate) fetches: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) congested: AtomicBool,
    pub(crate) missing_wakes: AtomicBool,
    pub(crate) warden: AtomicBool,
    pub(crate) pruned: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) published: AtomicU64,
    pub(crate) unpublished: AtomicU64,
    rest: Mutex<Rest>,
}

#[derive(Debug, Default)]
struct Rest {
    reconnects: BTreeMap<Cause, u64>,
    resets: BTreeMap<&'static str, u64>,
    lag: Option<Duration>,
    catch_ups: u64,
    last_catch_up: Option<(u64, Duration)>,
    handler_errors: BTreeMap<String, u64>,
    fetch_lost: Option<Cause>,
    watches_not_whole: Option<u64>,
}

impl Meters {
    fn rest(&self) -> std::sync::MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lost(&self, cause: Cause) {
        *self.rest().reconnects.entry(cause).or_default() += 1;
    }

    pub(crate) fn fetch_lost(&self, cause: Option<Cause>) {
        self.rest().fetch_lost = cause;
    }

    pub(crate) fn reset(&self, cause: &'static str) {
        *self.rest().resets.entry(cause).or_default() += 1;
    }

    pub(crate) fn caught_up(&self, events: u64, took: Duration) {
        let mut rest = self.rest();
        rest.catch_ups += 1;
        rest.last_catch_up = Some((events, took));
    }

    pub(crate) fn watches_checked(&self, not_whole: Option<u64>) {
        self.rest().watches_not_whole = not_whole;
    }

    pub(crate) fn lag(&self, lag: Duration) {
        self.rest().lag = Some(lag);
    }

    pub(crate) fn handler_failed(&self, pattern: &str) {
        *self.rest().handler_errors.entry(pattern.to_owned()).or_default() += 1;
    }

    /// Puts the counters together with the two states that live elsewhere.
    pub(crate) fn status(&self, listening: Listening, staleness: Option<Duration>) -> Status {
        let rest = self.rest();
        let flag = |flag: &AtomicBool, cause| flag.load(Ordering::Relaxed).then_some(cause);
        let degraded = match listening {
            Listening::Lost(cause) => Some(cause),
            Listening::Connecting | Listening::Proved | Listening::Off => rest
                .fetch_lost
                .or(flag(&self.congested, Cause::Congested))
                .or(flag(&self.missing_wakes, Cause::MissedWakes)),
        };
        Status {
            listening,
            degraded,
            staleness,
            reconnects: rest.reconnects.clone(),
            wakes: self.wakes.load(Ordering::Relaxed),
            probes: self.probes.load(Ordering::Relaxed),
            missed_wakes: self.missed_wakes.load(Ordering::Relaxed),
            fetches: self.fetches.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            lag: rest.lag,
            resets: rest.resets.clone(),
            catch_ups: rest.catch_ups,
            last_catch_up: rest.last_catch_up,
            warden: self.warden.load(Ordering::Relaxed),
            pruned: self.pruned.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
            published: self.published.load(Ordering::Relaxed),
            unpublished: self.unpublished.load(Ordering::Relaxed),
            watches_not_whole: rest.watches_not_whole,
            handler_errors: rest.handler_errors.clone(),
        }
    }
}
