//! Counts events that a wake should have announced and did not. Pure: time is an argument.

use std::time::{Duration, Instant};

/// A wake that has not come this long after its event was fetched is missed.
const PATIENCE: Duration = Duration::from_millis(200);
/// Announced events in a row, each with its wake, after which the path is trusted again.
const TRUST_AFTER_EVENTS: u64 = 10;
/// Time after the last missed wake, after which the path is trusted again.
const TRUST_AFTER: Duration = Duration::from_secs(30);

/// What the ledger concludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wakes arrive.
    Trusted,
    /// Wakes get lost: poll fast.
    Missing,
}

/// The ledger of announced events and wakes heard.
#[derive(Debug, Default)]
pub(crate) struct MissedWakes {
    /// Announced events that no wake has accounted for, and until when one may.
    awaited: Option<(u64, Instant)>,
    last_missed: Option<Instant>,
    accounted: u64,
    total: u64,
}

impl MissedWakes {
    /// A fetch was complete at `now` and brought `announced` events. `heard`: a wake was heard since the last
    /// complete fetch before it was sent.
    pub(crate) fn fetched(&mut self, announced: u64, heard: bool, now: Instant) {
        if heard {
            self.heard();
        }
        if announced == 0 {
            return;
        }
        if heard {
            self.accounted += announced;
        } else {
            let (count, until) = self.awaited.unwrap_or((0, now + PATIENCE));
            self.awaited = Some((count + announced, until));
        }
    }

    /// A wake was heard: it accounts for all that is awaited.
    pub(crate) fn heard(&mut self) {
        if let Some((count, _)) = self.awaited.take() {
            self.accounted += count;
        }
    }

    /// The LISTEN session is new or lost: wakes of before cannot arrive any more.
    pub(crate) fn forget(&mut self) {
        self.awaited = None;
    }

    /// When to ask for the verdict again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.awaited.map(|(_, until)| until)
    }

    /// Events missed so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The verdict at `now`.
    pub(crate) fn verdict(&mut self, now: Instant) -> Verdict {
        if let Some((count, until)) = self.awaited
            && now >= until
        {
            self.awaited = None;
            self.total += count;
            self.last_missed = Some(now);
            self.accounted = 0;
        }
        match self.last_missed {
            Some(last) if self.accounted < TRUST_AFTER_EVENTS && now.duration_since(last) < TRUST_AFTER => {
                Verdict::Missing
            }
            _ => Verdict::Trusted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_in_time_or_after_a_little_is_not_missed() {
        let start = Instant::now();
        let mut ledger = MissedWakes::default();
        ledger.fetched(3, true, start);
        assert_eq!(ledger.verdict(start + PATIENCE * 2), Verdict::Trusted);
        ledger.fetched(1, false, start);
        ledger.heard();
        assert_eq!(ledger.verdict(start + PATIENCE * 2), Verdict::Trusted);
        assert_eq!(ledger.total(), 0);
    }

    #[test]
    fn missed_wakes_are_counted_and_trust_comes_back() {
        let start = Instant::now();
        let mut ledger = MissedWakes::default();
        ledger.fetched(2, false, start);
        assert_eq!(ledger.due(), Some(start + PATIENCE));
        assert_eq!(ledger.verdict(start + PATIENCE), Verdict::Missing);
        assert_eq!(ledger.total(), 2);
        // Ten announced events with their wakes.
        ledger.fetched(9, true, start + PATIENCE);
        assert_eq!(ledger.verdict(start + PATIENCE), Verdict::Missing);
        ledger.fetched(1, true, start + PATIENCE);
        assert_eq!(ledger.verdict(start + PATIENCE), Verdict::Trusted);
        // Or time.
        ledger.fetched(1, false, start + PATIENCE);
        assert_eq!(ledger.verdict(start + PATIENCE * 2), Verdict::Missing);
        assert_eq!(
            ledger.verdict(start + PATIENCE * 2 + TRUST_AFTER),
            Verdict::Trusted
        );
    }

    #[test]
    fn a_new_session_owes_nothing() {
        let start = Instant::now();
        let mut ledger = MissedWakes::default();
        ledger.fetched(2, false, start);
        ledger.forget();
        assert_eq!(ledger.verdict(start + PATIENCE * 2), Verdict::Trusted);
    }
}
