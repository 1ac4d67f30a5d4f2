//! Moments on two clocks, and where they are read from.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A moment on two clocks: one that counts suspension (CLOCK_BOOTTIME) and the wall clock. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub(super) boot: i64,
    pub(super) wall: i64,
}

impl Moment {
    /// Largest disagreement of the two clocks that still counts as agreement.
    const MAX_CLOCK_STEP: i64 = 1_000_000_000;

    /// Now, by the system's clocks.
    #[inline]
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
    #[inline]
    pub fn age_at(self, now: Moment) -> Option<Duration> {
        let boot = now.boot - self.boot;
        let wall = now.wall - self.wall;
        ((wall - boot).abs() <= Self::MAX_CLOCK_STEP)
            .then(|| Duration::from_nanos(u64::try_from(boot).unwrap_or(0)))
    }
}

/// Where moments come from: the system, or hands that a test moves.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<Hands>>);

/// The hands of a clock that only moves when told to.
#[derive(Debug)]
pub struct Hands {
    boot: AtomicI64,
    wall: AtomicI64,
}

impl Clock {
    /// A clock that stands still until its hands are moved, so that a test of deadlines need not sleep.
    pub fn manual() -> (Self, Arc<Hands>) {
        let start = Moment::now();
        let hands = Arc::new(Hands {
            boot: AtomicI64::new(start.boot),
            wall: AtomicI64::new(start.wall),
        });
        (Self(Some(hands.clone())), hands)
    }

    /// Now, by this clock.
    #[inline]
    pub fn now(&self) -> Moment {
        match &self.0 {
            None => Moment::now(),
            Some(hands) => Moment {
                boot: hands.boot.load(Ordering::SeqCst),
                wall: hands.wall.load(Ordering::SeqCst),
            },
        }
    }
}

impl Hands {
    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let nanos = by.as_nanos() as i64;
        self.boot.fetch_add(nanos, Ordering::SeqCst);
        self.wall.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Lets the wall clock jump by so many milliseconds while the other stands still.
    pub fn jump_wall(&self, millis: i64) {
        self.wall.fetch_add(millis * 1_000_000, Ordering::SeqCst);
    }
}
