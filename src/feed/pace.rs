//! How often the feed may look. Pure: time is an argument.

use std::time::{Duration, Instant};

use crate::config::FeedConfig;

/// Fetches that may follow each other at once.
const BURST: f64 = 20.0;
/// Fetches a second in the long run: a forged or useless wake costs one of these at most.
const PER_SECOND: f64 = 200.0;

/// Token bucket over the fetches of one feed.
#[derive(Debug)]
pub(crate) struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            at: now,
        }
    }

    /// Takes a token, or says how long until there is one.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * PER_SECOND;
        self.tokens = (self.tokens + gained).min(BURST);
        self.at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / PER_SECOND))
    }
}

/// Whether the wake path carries the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rhythm {
    /// Wakes arrive, and polling is the proof of freshness; or nobody listens, and polling was chosen.
    Settled,
    /// They may not; polling carries the events.
    Unproved,
}

/// Pause after a fetch that took `took`: overload must not feed itself, and freshness must not suffer from the pause.
pub(crate) fn poll_pause(
    rhythm: Rhythm,
    took: Duration,
    settings: &FeedConfig,
    max_staleness: Duration,
) -> Duration {
    let base = match rhythm {
        Rhythm::Settled => settings.poll,
        Rhythm::Unproved => settings.poll_unproved,
    };
    base.max((took * 10).min(max_staleness / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_200_a_second() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let mut now = start;
        let mut taken = 0;
        while now < start + Duration::from_secs(10) {
            match bucket.take(now) {
                Ok(()) => taken += 1,
                Err(pause) => now += pause,
            }
        }
        assert!((2_010..=2_021).contains(&taken), "{taken}");
    }

    #[test]
    fn the_pause_grows_with_a_slow_server_but_not_past_a_quarter_of_max_staleness() {
        let settings = FeedConfig::default();
        let ms = Duration::from_millis;
        let pause = |rhythm, took| poll_pause(rhythm, ms(took), &settings, ms(5_000));
        assert_eq!(pause(Rhythm::Settled, 1), ms(500));
        assert_eq!(pause(Rhythm::Unproved, 1), ms(50));
        assert_eq!(pause(Rhythm::Unproved, 30), ms(300));
        assert_eq!(pause(Rhythm::Settled, 2_000), ms(1_250));
    }
}
