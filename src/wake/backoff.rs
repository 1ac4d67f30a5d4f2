//! Pauses between attempts: doubling, bounded, with half jitter, so that a fleet does not come back in step.

use std::time::Duration;

/// One schedule per session.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// The session works: the next failure starts from the shortest pause.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }

    /// The pause to take now: between half of the step and the whole of it. `jitter` in 0..1.
    pub(crate) fn pause(&mut self, jitter: f64) -> Duration {
        let step = self.next.min(self.max);
        self.next = (step * 2).min(self.max);
        step.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_bound_and_starts_over() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(3_000));
        let pauses: Vec<_> = (0..7).map(|_| backoff.pause(1.0)).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_000, 3_000].map(ms));
        assert_eq!(backoff.pause(0.0), ms(1_500));
        backoff.reset();
        assert_eq!(backoff.pause(0.0), ms(50));
    }

    #[test]
    fn an_outage_of_20_s_costs_at_most_20_attempts() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(3));
        let mut elapsed = Duration::ZERO;
        let mut attempts = 0;
        while elapsed < Duration::from_secs(20) {
            elapsed += backoff.pause(0.0);
            attempts += 1;
        }
        assert!(attempts <= 20, "{attempts}");
    }
}
