//! The wake path: one dedicated LISTEN session that says "look now", and nothing else.
//!
//! ```text
//!            connect                      every 5 s without a wake
//!               |                                   |
//!    listen RANDOM, is it this session's?  --no--> lost (pooler)
//!               | yes                               |
//!    listen pgevict, pgevict_probe                  |
//!               |                                   |
//!    ring: the feed fetches AFTER the LISTEN        |
//!               |                                   |
//!    notify RANDOM over `url` --unheard 2 s--> lost (two servers, pooler; else half-open)
//!               | heard                             |
//!    unlisten RANDOM                                |
//!               v                                   v
//!            PROVED <----heard---- notify pgevict_probe over the fetch session
//!               |                                   | unheard 2 s after its commit
//!               +----- any error, any close ------> lost -> backoff -> connect
//! ```
//!
//! What can fail, and what it means:
//! - a notification that nobody reads holds the server's queue back: the socket is drained by a task of its own
//!   ([`drain`]) that never waits for anything but the socket;
//! - wakes may merge or be forged: a wake carries no data, it costs one fetch at most;
//! - a wake may be lost without a sign: the poll finds the event, [`missed`] counts it and polls faster;
//! - the NOTIFY lock is held by others: a probe gives up after 200 ms; that is *congested*, not lost.

mod backoff;
mod drain;
mod listener;
mod missed;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::Notify;

pub(crate) use backoff::Backoff;
pub(crate) use listener::Listener;
pub(crate) use missed::{MissedWakes, Verdict as WakeVerdict};

/// The coalesced "look now": any number of rings before the feed looks are one.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    look: Notify,
    heard: Mutex<Option<Instant>>,
    wakes: AtomicU64,
}

impl Signal {
    /// A wake was heard at `now`.
    fn wake(&self, now: Instant) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.look.notify_one();
    }

    /// Look now, though no wake was heard.
    pub(crate) fn ring(&self) {
        self.look.notify_one();
    }

    /// Resolves once for all rings since the last time.
    pub(crate) async fn look(&self) {
        self.look.notified().await;
    }

    /// When the last wake was heard.
    pub(crate) fn heard(&self) -> Option<Instant> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes heard so far.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }
}
