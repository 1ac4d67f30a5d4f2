//! The memory of recent events: what decides whether a value that was read a while ago may still be kept.
//!
//! One per instance, shared by all its caches and attached to the feed before it starts, so that it has seen
//! every event that any of them must know. (A memory per cache would have to begin at the cursor; but while
//! pages of one catch-up are outstanding, events that the cursor does not see have been applied already and
//! would be missing: a value read on a lagging replica could then be kept for good.)
//!
//! **Invariant**: every event that the floor F does not see, and that was applied since the last reset, is
//! held. So for an R that covers F, "no held event that R does not see matches" means that *no* applied event
//! that R does not see matches.
//!
//! Events live in two spans, old and young. When the young one is old or large enough it becomes the old one,
//! and F moves to the cursor that was published when it began: what had been recorded before is seen by that
//! cursor, except events that were applied ahead of it (own writes, pages of an unfinished catch-up). Those
//! are carried over, never dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::position::Position;
use super::prefix::ByLength;
use super::xids::Xids;
use crate::event::{Key, LoggedEvent, Tag};
use crate::sink::{Origin, Reset, Sink};
use crate::snapshot::Snapshot;

/// Texts in the young span at which it becomes the old one, whatever its age.
const TEXTS: usize = 200_000;

/// Shortest life of a span. Longer than any load, or loads would be refused for their age.
const MIN_SPAN: Duration = Duration::from_secs(60);

/// The shared memory: [`Held`] behind a lock that storing takes for reading and applying for writing.
#[derive(Debug)]
pub(super) struct Memory {
    held: RwLock<Held>,
    /// Number of the last recorded event; readable without the lock.
    seq: AtomicU64,
    position: Arc<Position>,
}

impl Memory {
    /// Nothing is accepted before the first cursor is published. Spans outlive a load of `load_timeout`.
    pub(super) fn new(position: Arc<Position>, load_timeout: Duration) -> Self {
        Self {
            held: RwLock::new(Held::new(MIN_SPAN.max(load_timeout * 2), TEXTS)),
            seq: AtomicU64::new(0),
            position,
        }
    }

    /// While this is held nothing is recorded.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the last event recorded. An event that was applied before this call has at most this number.
    pub(super) fn seq(&self) -> u64 {
        self.seq.load(Ordering::SeqCst)
    }
}

impl Sink for Memory {
    fn apply(&self, events: &[Arc<LoggedEvent>], _origin: Origin) {
        let now = self.position.now().boot;
        for event in events {
            // The lock is taken per event, so that a large batch does not hold up those who store.
            let dropped = {
                let mut held = self.write();
                held.record(event);
                self.seq.store(held.seq, Ordering::SeqCst);
                held.rotate_if_due(now)
            };
            drop(dropped);
        }
    }

    fn published(&self, cursor: &Arc<Snapshot>) {
        let now = self.position.now().boot;
        let dropped = {
            let mut held = self.write();
            held.published(cursor, now);
            held.rotate_if_due(now)
        };
        drop(dropped);
    }

    fn reset(&self, _cause: Reset) {
        let dropped = {
            let mut held = self.write();
            let dropped = held.reset();
            self.seq.store(held.seq, Ordering::SeqCst);
            dropped
        };
        drop(dropped);
    }
}

/// The events held, and the floor. No I/O, no clock.
#[derive(Debug)]
pub(super) struct Held {
    /// F; `None` until a cursor is published.
    floor: Option<Arc<Snapshot>>,
    /// The last published cursor.
    cursor: Option<Arc<Snapshot>>,
    young: Span,
    old: Span,
    seq: u64,
    /// Highest number whose event is no longer held.
    forgotten: u64,
    max_age: i64,
    max_texts: usize,
}

/// What was recorded in one span of time.
#[derive(Debug, Default)]
pub(super) struct Span {
    keys: HashMap<Key, Xids>,
    tags: HashMap<Tag, Xids>,
    prefixes: ByLength<Xids>,
    /// Events that touch everything.
    all: Xids,
    texts: usize,
    /// The cursor that was published when the span began.
    began: Option<Arc<Snapshot>>,
    began_at: i64,
}

impl Held {
    pub(super) fn new(max_age: Duration, max_texts: usize) -> Self {
        Self {
            floor: None,
            cursor: None,
            young: Span::default(),
            old: Span::default(),
            seq: 0,
            forgotten: 0,
            max_age: max_age.as_nanos() as i64,
            max_texts,
        }
    }

    /// Holds what the event touches.
    pub(super) fn record(&mut self, event: &LoggedEvent) {
        self.seq += 1;
        let (xid, seq, cursor, span) = (event.xid, self.seq, self.cursor.as_ref(), &mut self.young);
        if event.empties_everything() {
            span.all.add(xid, seq, cursor);
            return;
        }
        for key in &event.keys {
            let xids = span.keys.entry(key.clone()).or_default();
            span.texts += usize::from(xids.is_empty());
            xids.add(xid, seq, cursor);
        }
        for tag in &event.tags {
            let xids = span.tags.entry(tag.clone()).or_default();
            span.texts += usize::from(xids.is_empty());
            xids.add(xid, seq, cursor);
        }
        for prefix in &event.prefixes {
            let (xids, new) = span.prefixes.at(prefix);
            span.texts += usize::from(new);
            xids.add(xid, seq, cursor);
        }
    }

    /// All that the cursor sees was recorded. The first one after a start or reset is the floor.
    pub(super) fn published(&mut self, cursor: &Arc<Snapshot>, now: i64) {
        if self.floor.is_none() {
            (self.young.began, self.young.began_at) = (Some(cursor.clone()), now);
            self.floor = Some(cursor.clone());
        }
        self.cursor = Some(cursor.clone());
    }

    /// Makes the young span the old one when its time has come; gives what is no longer held, to be dropped
    /// outside of the lock.
    pub(super) fn rotate_if_due(&mut self, now: i64) -> Option<Span> {
        self.cursor.as_ref()?;
        let due = now - self.young.began_at >= self.max_age || self.young.texts >= self.max_texts;
        due.then(|| self.rotate(now))
    }

    fn rotate(&mut self, now: i64) -> Span {
        let fresh = Span {
            began: self.cursor.clone(),
            began_at: now,
            ..Span::default()
        };
        let mut dropped = std::mem::replace(&mut self.old, std::mem::replace(&mut self.young, fresh));
        if let Some(floor) = self.old.began.clone() {
            self.forgotten = self.forgotten.max(self.old.take_unseen(&mut dropped, &floor));
            self.floor = Some(floor);
        }
        if self.old.texts > 2 * self.max_texts {
            self.old.generalize();
        }
        dropped
    }

    fn reset(&mut self) -> (Span, Span) {
        self.floor = None;
        self.cursor = None;
        // A reset counts as an event that touches everything: nobody after it shares a load from before it.
        self.seq += 1;
        self.forgotten = self.seq;
        (std::mem::take(&mut self.old), std::mem::take(&mut self.young))
    }

    /// False when a value read at R may be kept under this key with these tags: R covers the floor, and sees
    /// every held event that touches the key or one of the tags.
    pub(super) fn overtaken(&self, r: &Arc<Snapshot>, key: &Key, tags: &[Tag]) -> bool {
        let covered = self
            .floor
            .as_ref()
            .is_some_and(|floor| Arc::ptr_eq(floor, r) || r.covers(floor));
        !covered || self.touches(key, tags, |xids| xids.any_unseen_by(r))
    }

    /// True unless it is certain that no event recorded in `(after, until]` touches the key or one of the tags.
    pub(super) fn touched(&self, key: &Key, tags: &[Tag], after: u64, until: u64) -> bool {
        after < until
            && (after < self.forgotten || self.touches(key, tags, |xids| xids.any_recorded(after, until)))
    }

    fn touches(&self, key: &Key, tags: &[Tag], is: impl Fn(&Xids) -> bool) -> bool {
        [&self.young, &self.old].into_iter().any(|span| {
            is(&span.all)
                || span.keys.get(key).is_some_and(&is)
                || tags.iter().any(|tag| span.tags.get(tag).is_some_and(&is))
                || (!span.prefixes.is_empty()
                    && std::iter::once(key.as_str())
                        .chain(tags.iter().map(Tag::as_str))
                        .any(|text| span.prefixes.of(text).any(&is)))
        })
    }
}

impl Span {
    /// Takes over, from a span that is being dropped, all that the floor does not see; gives the highest number
    /// that stays behind.
    fn take_unseen(&mut self, dropped: &mut Span, floor: &Snapshot) -> u64 {
        let mut forgotten = dropped.all.forget_seen_by(floor);
        self.all.absorb(std::mem::take(&mut dropped.all));
        for (key, mut xids) in std::mem::take(&mut dropped.keys) {
            forgotten = forgotten.max(xids.forget_seen_by(floor));
            if !xids.is_empty() {
                let ours = self.keys.entry(key).or_default();
                self.texts += usize::from(ours.is_empty());
                ours.absorb(xids);
            }
        }
        for (tag, mut xids) in std::mem::take(&mut dropped.tags) {
            forgotten = forgotten.max(xids.forget_seen_by(floor));
            if !xids.is_empty() {
                let ours = self.tags.entry(tag).or_default();
                self.texts += usize::from(ours.is_empty());
                ours.absorb(xids);
            }
        }
        for (prefix, mut xids) in std::mem::take(&mut dropped.prefixes).into_iter() {
            forgotten = forgotten.max(xids.forget_seen_by(floor));
            if !xids.is_empty() {
                let (ours, new) = self.prefixes.at(&prefix);
                self.texts += usize::from(new);
                ours.absorb(xids);
            }
        }
        forgotten
    }

    /// Bounds a span that outgrew its limit because the cursor stands still: its transactions now touch
    /// everything. Refuses more, never less.
    fn generalize(&mut self) {
        let keys = std::mem::take(&mut self.keys).into_values();
        let tags = std::mem::take(&mut self.tags).into_values();
        let prefixes = std::mem::take(&mut self.prefixes)
            .into_iter()
            .map(|(_, xids)| xids);
        self.all.absorb_all(keys.chain(tags).chain(prefixes));
        self.texts = 0;
    }
}

#[cfg(test)]
mod tests;
