//! When each event was sent and when it was seen, on one clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The times of one system's events, by number.
#[derive(Debug)]
pub(crate) struct Ledger {
    zero: Instant,
    events: Box<[Times]>,
}

/// Nanoseconds since the ledger was made; 0 = not yet.
#[derive(Debug, Default)]
struct Times {
    sent: AtomicU64,
    seen: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(events: usize) -> Self {
        Self {
            zero: Instant::now(),
            events: (0..events).map(|_| Times::default()).collect(),
        }
    }

    fn now(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    /// The COMMIT of an event is about to be sent.
    pub(crate) fn sent(&self, event: usize) {
        self.events[event].sent.store(self.now(), Ordering::Relaxed);
    }

    /// An event has arrived; only the first time counts.
    pub(crate) fn seen(&self, event: usize) {
        let now = self.now();
        let seen = &self.events[event].seen;
        let _ = seen.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Events that have not arrived.
    pub(crate) fn missing(&self) -> usize {
        self.events
            .iter()
            .filter(|times| times.seen.load(Ordering::Relaxed) == 0)
            .count()
    }

    /// How long each event took, the first `skip` left out.
    pub(crate) fn latencies(&self, skip: usize) -> impl Iterator<Item = Option<Duration>> {
        self.events.iter().skip(skip).map(|times| {
            let seen = times.seen.load(Ordering::Relaxed);
            let took = seen.saturating_sub(times.sent.load(Ordering::Relaxed));
            (seen > 0).then(|| Duration::from_nanos(took))
        })
    }
}
