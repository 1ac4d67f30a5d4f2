//! What a feed delivers to: the [`Sink`] trait and the set of sinks of one feed.
//!
//! The feed hands every batch to every sink *before* it publishes the cursor that sees the batch, under one
//! lock with attaching a new sink. So whoever holds a fill token has, in its cache, every event that the token's
//! snapshot sees, and every event applied after the sink was attached.

mod handler;
mod pattern;
mod stream;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event::LoggedEvent;
use crate::snapshot::Snapshot;

pub use handler::Outcome;
pub(crate) use handler::{Handlers, Registered, Whose};
pub use pattern::Pattern;
pub(crate) use stream::stream;
pub use stream::{Delivery, Subscription};

/// Why everything held so far is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reset {
    /// The server lost what it kept in memory (crash, promotion, base backup).
    Epoch,
    /// This is another log (restore, clone, upgrade).
    Identity,
    /// The events after our cursor have been pruned.
    Pruned,
    /// The log does not hold what it had acknowledged to us.
    Heartbeat,
    /// The reader was too slow for its queue.
    Overflow,
}

impl Reset {
    /// The cause in one word, for logs, metrics and streams.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Epoch => "epoch",
            Self::Identity => "identity",
            Self::Pruned => "pruned",
            Self::Heartbeat => "heartbeat",
            Self::Overflow => "overflow",
        }
    }
}

/// Where a batch came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Fetched from the log.
    Feed,
    /// Emitted here and applied right after its commit; the feed will bring it once more.
    Own,
}

/// Something that a feed delivers events to. Neither method may block or panic.
pub trait Sink: Send + Sync + 'static {
    /// Applies a batch.
    fn apply(&self, events: &[Arc<LoggedEvent>], origin: Origin);

    /// The cursor that sees every batch handed over so far has been published.
    fn published(&self, _cursor: &Arc<Snapshot>) {}

    /// All that was held before is void. Whatever is committed later than this call will be applied: what is read
    /// from now on may be held again.
    fn reset(&self, cause: Reset);

    /// False once nobody can observe it any more; it is then let go when the next sink is attached.
    fn is_live(&self) -> bool {
        true
    }
}

/// The sinks of one feed, in the order in which they were attached.
#[derive(Default)]
pub struct Sinks(Mutex<Vec<Arc<dyn Sink>>>);

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sinks").finish_non_exhaustive()
    }
}

impl Sinks {
    /// Runs `step` with all sinks while no sink can be attached: apply and publish are one step.
    pub fn with<T>(&self, step: impl FnOnce(&[Arc<dyn Sink>]) -> T) -> T {
        step(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Attaches the sink that `make` builds; no batch is applied between the two.
    pub fn attach<S: Sink>(&self, make: impl FnOnce() -> Arc<S>) -> Arc<S> {
        let mut sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sinks.retain(|sink| sink.is_live());
        let sink = make();
        sinks.push(sink.clone());
        sink
    }
}
