//! The transactions whose events touched one text.

use std::sync::Arc;

use crate::snapshot::{Snapshot, Xid};

/// Transactions, each with the number of the application that recorded it.
///
/// Bounded for a text that is touched all the time: once [`Xids::CROWD`] are listed, those that the published
/// cursor sees are replaced by the demand that R covers that cursor. That refuses more than the list would,
/// never less.
#[derive(Debug, Default)]
pub(super) struct Xids {
    listed: Vec<(Xid, u64)>,
    folded: Option<Folded>,
}

#[derive(Debug)]
struct Folded {
    /// Sees every transaction that was folded in.
    into: Arc<Snapshot>,
    last_seq: u64,
}

impl Xids {
    const CROWD: usize = 32;

    /// Records one. A repeat (the feed's echo of an own event) keeps its first number: it is no new change.
    pub(super) fn add(&mut self, xid: Xid, seq: u64, cursor: Option<&Arc<Snapshot>>) {
        if self
            .listed
            .iter()
            .rev()
            .take(Self::CROWD)
            .any(|(held, _)| *held == xid)
        {
            return;
        }
        self.listed.push((xid, seq));
        if self.listed.len() >= Self::CROWD && self.listed.len().is_power_of_two() {
            self.fold(cursor);
        }
    }

    fn fold(&mut self, cursor: Option<&Arc<Snapshot>>) {
        self.listed.sort_unstable();
        self.listed.dedup_by_key(|(xid, _)| *xid);
        let Some(cursor) = cursor else { return };
        let mut last_seq = 0;
        self.listed.retain(|(xid, seq)| {
            let seen = cursor.sees(*xid);
            if seen {
                last_seq = last_seq.max(*seq);
            }
            !seen
        });
        if last_seq > 0 {
            let before = self.folded.as_ref().map_or(0, |folded| folded.last_seq);
            self.folded = Some(Folded {
                into: cursor.clone(),
                last_seq: last_seq.max(before),
            });
        }
    }

    /// True when one of them is not seen by R.
    pub(super) fn any_unseen_by(&self, r: &Snapshot) -> bool {
        self.listed.iter().rev().any(|(xid, _)| !r.sees(*xid))
            || self.folded.as_ref().is_some_and(|folded| !r.covers(&folded.into))
    }

    /// True when one of them may have been recorded in `(after, until]`.
    pub(super) fn any_recorded(&self, after: u64, until: u64) -> bool {
        self.listed
            .iter()
            .rev()
            .any(|(_, seq)| *seq > after && *seq <= until)
            || self.folded.as_ref().is_some_and(|folded| folded.last_seq > after)
    }

    /// Forgets what every R that covers `floor` sees; gives the highest number forgotten.
    pub(super) fn forget_seen_by(&mut self, floor: &Snapshot) -> u64 {
        let mut forgotten = 0;
        self.listed.retain(|(xid, seq)| {
            let seen = floor.sees(*xid);
            if seen {
                forgotten = forgotten.max(*seq);
            }
            !seen
        });
        if let Some(folded) = self.folded.take_if(|folded| floor.covers(&folded.into)) {
            forgotten = forgotten.max(folded.last_seq);
        }
        forgotten
    }

    pub(super) fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.folded.is_none()
    }

    /// Takes over what many others hold.
    pub(super) fn absorb_all(&mut self, others: impl Iterator<Item = Xids>) {
        for other in others {
            self.absorb(other);
        }
        self.fold(None);
    }

    /// Takes over what another holds.
    pub(super) fn absorb(&mut self, other: Xids) {
        self.listed.extend(other.listed);
        if let Some(theirs) = other.folded {
            // The later cursor covers the earlier one.
            let last_seq = theirs
                .last_seq
                .max(self.folded.as_ref().map_or(0, |ours| ours.last_seq));
            let into = match self.folded.take() {
                Some(ours) if ours.into.covers(&theirs.into) => ours.into,
                _ => theirs.into,
            };
            self.folded = Some(Folded { into, last_seq });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Arc<Snapshot> {
        Arc::new(text.parse().unwrap())
    }

    #[test]
    fn a_crowd_is_folded_and_still_refuses_whoever_missed_one() {
        let mut xids = Xids::default();
        let cursor = snapshot("1000:1000:");
        for xid in 100..400 {
            xids.add(Xid(xid), xid, Some(&cursor));
        }
        assert!(xids.listed.len() < Xids::CROWD);
        assert!(xids.any_unseen_by(&snapshot("100:1000:100")));
        assert!(!xids.any_unseen_by(&cursor));
        assert!(xids.any_recorded(50, 60), "unsure, so yes");
        assert!(!xids.any_recorded(399, 500));
        xids.add(Xid(1_200), 400, Some(&cursor));
        assert!(xids.any_unseen_by(&cursor));
        assert_eq!(xids.forget_seen_by(&snapshot("1100:1100:")), 399);
        assert!(!xids.is_empty(), "1200 stays");
    }

    #[test]
    fn an_echo_keeps_the_first_number() {
        let mut xids = Xids::default();
        xids.add(Xid(7), 1, None);
        xids.add(Xid(7), 2, None);
        assert!(!xids.any_recorded(1, 2));
    }
}
