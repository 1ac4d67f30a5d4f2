//! Loads in the air: at most two for a key, and who may share which.
//!
//! ```text
//!   caller 1 ──lead──> load A ───────────────────────────> result A
//!   caller 2 ──join──────^                │
//!   event touches the key ────────────────┤
//!   caller 3 ──lead───────────────────────┴─> load B ────> result B
//!   caller 4 ──join (arrived after the event)───^
//! ```
//!
//! A caller may share a load if no event that touches its key or tags was applied between the beginning of the
//! load and the caller's arrival. Events are numbered as they are recorded, so this is a question to the memory
//! about the span `(began, arrived]`. Keys and prefixes are asked about at the door; tags are known only when
//! the load is done, so the question is asked again then, and whoever must not have the result goes round once
//! more, to a load that began after it arrived.
//!
//! What can happen to a load: it ends (value or error, for all who wait); its leader is dropped (the waiters
//! find it gone and one of them leads); its leader lives but is never polled again (past the deadline it is
//! struck off, as if it had been dropped).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::clock::Moment;
use crate::event::{Key, Tag};

/// How a load ended.
#[derive(Debug)]
pub(super) enum Outcome<V> {
    /// The value, or that there is none, and its tags.
    Loaded(Option<V>, Vec<Tag>),
    /// For all who wait.
    Failed(Failure),
}

/// Why a load gave nothing.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    Loader(Arc<dyn std::error::Error + Send + Sync>),
    Panic(String),
    Deadline,
}

/// One load, as others see it.
#[derive(Debug)]
pub(super) struct Flight<V> {
    /// Number of the last event recorded when the loader started; `WAITING` until then.
    began: AtomicU64,
    /// When it was registered: the loader reads later than this.
    pub(super) registered: Moment,
    /// By then its leader has ended it.
    pub(super) deadline: Instant,
    /// Told by a caller who holds a turn of its own: do not wait for yours.
    pub(super) hurry: Notify,
    outcome: watch::Receiver<Option<Arc<Outcome<V>>>>,
}

const WAITING: u64 = u64::MAX;

impl<V> Flight<V> {
    /// The loader starts now, after event `seq` was recorded.
    pub(super) fn begin(&self, seq: u64) {
        self.began.store(seq, Ordering::SeqCst);
    }

    /// Number of the last event recorded before the loader started; `None` while it waits for its turn, so
    /// that it will begin after whatever has been recorded by now.
    pub(super) fn began(&self) -> Option<u64> {
        let began = self.began.load(Ordering::SeqCst);
        (began != WAITING).then_some(began)
    }

    /// Waits for the end; `None` when the leader was dropped before it.
    pub(super) async fn outcome(&self) -> Option<Arc<Outcome<V>>> {
        let mut outcome = self.outcome.clone();
        outcome.wait_for(Option::is_some).await.ok()?.clone()
    }
}

/// The loads of one cache that are in the air, by key, oldest first.
#[derive(Debug)]
pub(super) struct Flights<V>(DashMap<Key, Vec<Arc<Flight<V>>>>);

impl<V> Default for Flights<V> {
    fn default() -> Self {
        Self(DashMap::new())
    }
}

/// What a caller is to do.
pub(super) enum Seat<'a, V> {
    /// Run its loader, for itself and all who join.
    Lead(Leader<'a, V>),
    /// Wait for this load.
    Join(Arc<Flight<V>>),
    /// Two loads are in the air and both may be too old for it: wait until this one, the older, has ended.
    Full(Arc<Flight<V>>),
}

impl<V> Flights<V> {
    /// Most loads in the air for one key.
    const MOST: usize = 2;

    /// Gives a seat in the newest load that `serves` the caller, or a new load.
    pub(super) fn board(
        &self,
        key: &Key,
        registered: Moment,
        deadline: Instant,
        serves: impl Fn(&Flight<V>) -> bool,
    ) -> Seat<'_, V> {
        let mut flights = self.0.entry(key.clone()).or_default();
        if let Some(flight) = flights.iter().rev().find(|flight| serves(flight)) {
            return Seat::Join(flight.clone());
        }
        if flights.len() >= Self::MOST {
            return Seat::Full(flights[0].clone());
        }
        let (result, outcome) = watch::channel(None);
        let flight = Arc::new(Flight {
            began: AtomicU64::new(WAITING),
            registered,
            deadline,
            hurry: Notify::new(),
            outcome,
        });
        flights.push(flight.clone());
        Seat::Lead(Leader {
            flights: self,
            key: key.clone(),
            flight,
            result,
        })
    }

    /// Strikes a load off: nobody boards it any more.
    pub(super) fn strike(&self, key: &Key, flight: &Arc<Flight<V>>) {
        if let Entry::Occupied(mut flights) = self.0.entry(key.clone()) {
            flights.get_mut().retain(|other| !Arc::ptr_eq(other, flight));
            if flights.get().is_empty() {
                flights.remove();
            }
        }
    }

    /// Keys with a load in the air.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The right, and the duty, to run a load. Dropped before it ended: the load is struck off and those who wait
/// find out.
#[derive(Debug)]
pub(super) struct Leader<'a, V> {
    flights: &'a Flights<V>,
    key: Key,
    pub(super) flight: Arc<Flight<V>>,
    result: watch::Sender<Option<Arc<Outcome<V>>>>,
}

impl<V> Leader<'_, V> {
    /// Ends the load for all who wait.
    pub(super) fn end(self, outcome: Arc<Outcome<V>>) {
        // Struck off first, so that whoever wakes up and goes round finds no trace of it.
        self.flights.strike(&self.key, &self.flight);
        self.result.send_replace(Some(outcome));
    }
}

impl<V> Drop for Leader<'_, V> {
    fn drop(&mut self) {
        // The sender is dropped after this, which wakes those who wait.
        self.flights.strike(&self.key, &self.flight);
    }
}
