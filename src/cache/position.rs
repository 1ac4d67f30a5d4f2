//! Where the feed stands: the published cursor, when it was proved, and what has been voided since.
//!
//! Written by the feed only; read by every hit and every fill token. A flush or reset moves the generation,
//! which hides every entry and voids every fill token issued before, at once and without touching the entries.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use crate::snapshot::Snapshot;

/// A moment on two clocks: one that counts suspension (CLOCK_BOOTTIME) and the wall clock. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    boot: i64,
    wall: i64,
}

impl Moment {
    /// Largest disagreement of the two clocks that still counts as agreement.
    const MAX_CLOCK_STEP: i64 = 1_000_000_000;

    /// Now.
    pub fn now() -> Self {
        use rustix::time::{ClockId, clock_gettime};
        let nanos = |id| {
            let time = clock_gettime(id);
            time.tv_sec * 1_000_000_000 + time.tv_nsec
        };
        Self {
            boot: nanos(ClockId::Boottime),
            wall: nanos(ClockId::RealtimeCoarse),
        }
    }

    /// Age of `self` at `now`; `None` when the wall clock jumped against the other by over 1 s in between.
    pub fn age_at(self, now: Moment) -> Option<Duration> {
        let boot = now.boot - self.boot;
        let wall = now.wall - self.wall;
        ((wall - boot).abs() <= Self::MAX_CLOCK_STEP)
            .then(|| Duration::from_nanos(u64::try_from(boot).unwrap_or(0)))
    }
}

/// The published position of one feed.
#[derive(Debug, Default)]
pub struct Position {
    cursor: RwLock<Option<Arc<Snapshot>>>,
    generation: AtomicU64,
    as_of_boot: AtomicI64,
    as_of_wall: AtomicI64,
}

impl Position {
    /// The published cursor; `None` until the first complete fetch and between a reset and the next one.
    pub fn cursor(&self) -> Option<Arc<Snapshot>> {
        self.cursor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves with every flush and reset.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// When this instance last proved that it had seen everything; `None` before the first proof.
    pub fn as_of(&self) -> Option<Moment> {
        let boot = self.as_of_boot.load(Ordering::Acquire);
        (boot != 0).then(|| Moment {
            boot,
            wall: self.as_of_wall.load(Ordering::Acquire),
        })
    }

    /// True when the last proof is at most `max_staleness` old.
    pub fn is_fresh(&self, max_staleness: Duration) -> bool {
        self.as_of()
            .and_then(|as_of| as_of.age_at(Moment::now()))
            .is_some_and(|age| age <= max_staleness)
    }

    /// Age of the last proof as a wall-clock time, for people.
    pub fn as_of_wall(&self) -> Option<SystemTime> {
        let wall = self.as_of()?.wall;
        Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(wall).unwrap_or(0)))
    }

    /// Publishes the cursor of a complete fetch that was sent at `as_of`.
    pub(crate) fn publish(&self, cursor: Arc<Snapshot>, as_of: Moment) {
        *self.cursor.write().unwrap_or_else(PoisonError::into_inner) = Some(cursor);
        self.as_of_wall.store(as_of.wall, Ordering::Release);
        self.as_of_boot.store(as_of.boot, Ordering::Release);
    }

    /// Voids every fill token and hides every entry. A reset also withdraws cursor and proof.
    pub(crate) fn void(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Voids, and withdraws the cursor and the proof until the next complete fetch.
    pub(crate) fn withdraw(&self) {
        *self.cursor.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.as_of_boot.store(0, Ordering::Release);
        self.void();
    }
}
