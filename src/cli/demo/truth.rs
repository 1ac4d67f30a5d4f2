//! What the database had committed, and what each instance has applied: the judge of the demo.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pgevict::snapshot::Xid;

use super::stage::{INSTANCES, MAX_STALENESS};

/// Ledger of writes, applications and reads.
#[derive(Default)]
pub(super) struct Truth(Mutex<Ledger>);

#[derive(Default)]
struct Ledger {
    writes: HashMap<Xid, Write>,
    /// When version n of a product was replaced, at the latest; index = product, then version.
    replaced: HashMap<i32, HashMap<i64, Instant>>,
    applied: Vec<Applied>,
    reads: Reads,
}

/// One write whose COMMIT has been sent.
struct Write {
    sent: Instant,
    /// `None` while it is not known whether it committed.
    committed: Option<Instant>,
    applied: [bool; INSTANCES],
}

/// One event at one instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applied {
    pub(super) instance: usize,
    pub(super) sent: Instant,
    pub(super) at: Instant,
}

/// What the readers saw.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reads {
    pub(super) hits: u64,
    pub(super) stale: u64,
    pub(super) max_stale: Duration,
}

impl Truth {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A COMMIT is about to be sent.
    pub(super) fn sending(&self, xid: Xid) {
        let write = Write {
            sent: Instant::now(),
            committed: None,
            applied: [false; INSTANCES],
        };
        self.ledger().writes.insert(xid, write);
    }

    /// The write of `xid` is committed: the version before it is replaced, from now at the latest.
    pub(super) fn committed(&self, xid: Xid, product: i32, replaced: i64) {
        let now = Instant::now();
        let mut ledger = self.ledger();
        if let Some(write) = ledger.writes.get_mut(&xid) {
            write.committed = Some(now);
        }
        ledger.replaced.entry(product).or_default().insert(replaced, now);
    }

    /// The write of `xid` did not commit.
    pub(super) fn rolled_back(&self, xid: Xid) {
        self.ledger().writes.remove(&xid);
    }

    /// An instance has applied an event.
    pub(super) fn applied(&self, instance: usize, xid: Xid) {
        let at = Instant::now();
        let mut ledger = self.ledger();
        let Some(write) = ledger.writes.get_mut(&xid) else {
            return;
        };
        if !std::mem::replace(&mut write.applied[instance], true) {
            let sent = write.sent;
            ledger.applied.push(Applied { instance, sent, at });
        }
    }

    /// An instance has dropped everything: whatever was committed by now is handled there.
    pub(super) fn reset(&self, instance: usize) {
        for write in self.ledger().writes.values_mut() {
            write.applied[instance] |= write.committed.is_some();
        }
    }

    /// A hit was served as fresh; `asked` is a moment before it was.
    pub(super) fn hit(&self, product: i32, version: i64, asked: Instant) {
        let mut ledger = self.ledger();
        let replaced = ledger
            .replaced
            .get(&product)
            .and_then(|versions| versions.get(&version));
        let stale = replaced.map_or(Duration::ZERO, |replaced| {
            asked.saturating_duration_since(*replaced)
        });
        let reads = &mut ledger.reads;
        reads.hits += 1;
        reads.stale += u64::from(stale > MAX_STALENESS);
        reads.max_stale = reads.max_stale.max(stale);
    }

    /// Committed events.
    pub(super) fn events(&self) -> u64 {
        let ledger = self.ledger();
        ledger
            .writes
            .values()
            .filter(|write| write.committed.is_some())
            .count() as u64
    }

    /// Events committed before `until` that some instance has not applied, counted by instance.
    pub(super) fn missing(&self, until: Instant) -> u64 {
        let ledger = self.ledger();
        let committed = ledger
            .writes
            .values()
            .filter(|write| write.committed.is_some_and(|committed| committed <= until));
        committed
            .map(|write| write.applied.iter().filter(|applied| !**applied).count() as u64)
            .sum()
    }

    /// What the readers saw so far.
    pub(super) fn reads(&self) -> Reads {
        self.ledger().reads
    }

    /// All applications from the `from`-th on.
    pub(super) fn applications(&self, from: usize) -> Vec<Applied> {
        self.ledger().applied[from..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judge_sees_a_stale_read_and_a_lost_event() {
        let truth = Truth::default();
        truth.sending(Xid(7));
        truth.committed(Xid(7), 1, 0);
        let later = Instant::now() + MAX_STALENESS * 2;
        truth.hit(1, 1, later);
        assert_eq!(truth.reads().stale, 0, "the current version is never stale");
        truth.hit(1, 0, later);
        let reads = truth.reads();
        assert_eq!((reads.hits, reads.stale), (2, 1));
        assert!(reads.max_stale > MAX_STALENESS);

        assert_eq!(truth.missing(Instant::now()), INSTANCES as u64);
        truth.applied(0, Xid(7));
        truth.applied(0, Xid(7));
        truth.reset(1);
        assert_eq!(truth.missing(Instant::now()), INSTANCES as u64 - 2);
        assert_eq!(truth.applications(0).len(), 1);
        truth.sending(Xid(8));
        truth.rolled_back(Xid(8));
        assert_eq!(truth.events(), 1);
    }
}
