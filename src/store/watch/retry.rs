//! Pauses between tries for a lock that others queue up behind.

use std::time::{Duration, Instant};

/// Counts the tries and spaces them: long enough for the writers who queued up behind one try to get through before the
/// next, with jitter so that several who try do not take turns in blocking them.
#[derive(Debug)]
pub(in crate::store) struct Retry {
    until: Instant,
    pause: Duration,
    tries: u32,
}

impl Retry {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(2);

    /// Tries for up to `limit` from now.
    pub(in crate::store) fn new(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit,
            pause: Self::FIRST,
            tries: 1,
        }
    }

    /// Tries made so far.
    pub(in crate::store) fn tries(&self) -> u32 {
        self.tries
    }

    /// Pauses before the next try; false, without a pause, when it would begin after the limit.
    pub(in crate::store) async fn pause(&mut self) -> bool {
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        if Instant::now() + pause >= self.until {
            return false;
        }
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 3 / 2).min(Self::LONGEST);
        self.tries += 1;
        true
    }
}
