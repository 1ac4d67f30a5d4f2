//! Which tags the entries of another cache carry.
//!
//! The record of a key changes under the lock of its stripe, together with the entry itself, so the tags recorded are
//! those of the entry that is there. While an entry is replaced both lots are recorded: whichever is there is found.
//!
//! The cache drops entries for room without a word. Their records stay until the next sweep, which asks the cache what
//! it still holds. A sweep is due when the records have doubled since the last one, so there are at most twice as many
//! as there were entries then (or 1,024), and each store pays for two questions on average.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::index::{EntryId, TagIndex};
use crate::event::{Key, Tag};

const STRIPES: usize = 64;

/// Records at which the first sweep is due.
const FEW: usize = 1_024;

#[derive(Debug)]
pub(super) struct Records {
    stripes: Box<[Mutex<Stripe>]>,
    hasher: RandomState,
    index: TagIndex,
    next_id: AtomicU64,
    count: AtomicUsize,
    sweep_at: AtomicUsize,
}

type Stripe = HashMap<Key, Record>;

#[derive(Debug)]
struct Record {
    /// Of the key; in the index under each of the tags.
    id: EntryId,
    tags: Vec<Tag>,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            index: TagIndex::default(),
            next_id: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            sweep_at: AtomicUsize::new(FEW),
        }
    }
}

/// When dropped: the next sweep is due when the records have doubled.
struct DueLater<'a>(&'a Records);

impl Drop for DueLater<'_> {
    fn drop(&mut self) {
        let records = self.0;
        records
            .sweep_at
            .store(FEW.max(2 * records.len()), Ordering::Relaxed);
    }
}

impl Records {
    /// Runs `insert`, which puts an entry with these tags under the key.
    pub(super) fn replace(&self, key: &Key, tags: &[Tag], insert: impl FnOnce()) {
        let mut stripe = self.stripe(key);
        if tags.is_empty() && !stripe.contains_key(key) {
            return insert();
        }
        let record = stripe.entry(key.clone()).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::Relaxed);
            Record {
                id: self.next_id.fetch_add(1, Ordering::Relaxed),
                tags: Vec::new(),
            }
        });
        let new: Vec<_> = tags
            .iter()
            .filter(|tag| !record.tags.contains(tag))
            .cloned()
            .collect();
        self.index.add(&new, record.id, key);
        record.tags.extend(new);
        insert();
        let gone: Vec<_> = record.tags.extract_if(.., |tag| !tags.contains(tag)).collect();
        self.index.remove(&gone, record.id);
        if record.tags.is_empty() {
            self.drop_record(&mut stripe, key);
        }
    }

    /// Runs `evict`, which drops the entry under the key.
    pub(super) fn remove(&self, key: &Key, evict: impl FnOnce()) {
        let mut stripe = self.stripe(key);
        evict();
        self.drop_record(&mut stripe, key);
    }

    /// Keys whose entries carry the tag.
    pub(super) fn carriers(&self, tag: &Tag) -> impl Iterator<Item = Key> {
        self.index.carriers(tag).into_iter().map(|(_, key)| key)
    }

    /// Keys whose entries carry such a tag.
    pub(super) fn carriers_where(&self, such: impl Fn(&str) -> bool) -> impl Iterator<Item = Key> {
        self.index.carriers_where(such).into_iter().map(|(_, key)| key)
    }

    /// True when records have gathered of which nobody knows whether their entries are still there.
    pub(super) fn sweep_is_due(&self) -> bool {
        self.len() >= self.sweep_at.load(Ordering::Relaxed)
    }

    /// Drops the records of keys that are no longer held.
    pub(super) fn sweep(&self, holds: impl Fn(&str) -> bool) {
        // Others who store meanwhile need not sweep as well. Set anew however this ends: `holds` may be the user's.
        self.sweep_at.store(usize::MAX, Ordering::Relaxed);
        let _due_later = DueLater(self);
        for stripe in &self.stripes {
            let mut stripe = lock(stripe);
            for (key, record) in stripe.extract_if(|key, _| !holds(key.as_str())) {
                self.forget(&record);
                drop(key);
            }
            if stripe.len() * 8 < stripe.capacity() {
                stripe.shrink_to_fit();
            }
        }
    }

    /// Keys that have a record.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Tags that a record names.
    pub(super) fn tags(&self) -> usize {
        self.index.len()
    }

    fn stripe(&self, key: &Key) -> MutexGuard<'_, Stripe> {
        let n = self.hasher.hash_one(key) as usize % STRIPES;
        lock(&self.stripes[n])
    }

    fn drop_record(&self, stripe: &mut Stripe, key: &Key) {
        if let Some(record) = stripe.remove(key) {
            self.forget(&record);
        }
    }

    fn forget(&self, record: &Record) {
        self.index.remove(&record.tags, record.id);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock(stripe: &Mutex<Stripe>) -> MutexGuard<'_, Stripe> {
    // What a panic of the cache left is both lots of tags: too many at worst.
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_cache_that_panics_is_asked_again_at_the_next_sweep() {
        let records = Records::default();
        let tags = [Tag::new("t").unwrap()];
        let store = |n: usize| records.replace(&Key::new(n.to_string()).unwrap(), &tags, || {});
        (0..FEW).for_each(store);
        assert!(records.sweep_is_due());
        let panics = || records.sweep(|_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        (FEW..2 * FEW).for_each(store);
        assert!(records.sweep_is_due());
        records.sweep(|_| false);
        assert_eq!((records.len(), records.tags()), (0, 0));
    }
}
