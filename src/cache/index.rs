//! Which entries carry a tag.
//!
//! A record stands for one *entry* (by its unique id), not for a key. It is put in before the entry enters the
//! cache and taken out after exactly that entry has left it, so there is no moment at which a live entry lacks
//! a record, and a late removal cannot take the record of a newer entry under the same key. A set that becomes
//! empty is removed under the lock that emptied it, so no record can slip into a set that is on its way out.

use std::collections::HashMap;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::event::{Key, Tag};

/// Identity of an entry within one cache; never reused.
pub(super) type EntryId = u64;

/// From tags to the entries that carry them.
#[derive(Debug, Default)]
pub(super) struct TagIndex(DashMap<Tag, HashMap<EntryId, Key>>);

impl TagIndex {
    /// Records an entry; before it enters the cache.
    pub(super) fn add(&self, tags: &[Tag], id: EntryId, key: &Key) {
        for tag in tags {
            self.0.entry(tag.clone()).or_default().insert(id, key.clone());
        }
    }

    /// Takes the records of an entry out; after it left the cache.
    pub(super) fn remove(&self, tags: &[Tag], id: EntryId) {
        for tag in tags {
            if let Entry::Occupied(mut set) = self.0.entry(tag.clone()) {
                let entries = set.get_mut();
                entries.remove(&id);
                if entries.is_empty() {
                    set.remove();
                } else if entries.capacity() > 64 && entries.len() * 8 < entries.capacity() {
                    entries.shrink_to_fit();
                }
            }
        }
    }

    /// The entries that carry the tag, copied so that no lock is held while they are evicted.
    pub(super) fn carriers(&self, tag: &Tag) -> Vec<(EntryId, Key)> {
        self.0
            .get(tag)
            .map(|set| set.iter().map(|(id, key)| (*id, key.clone())).collect())
            .unwrap_or_default()
    }

    /// The entries that carry such a tag, perhaps several times.
    pub(super) fn carriers_where(&self, such: impl Fn(&str) -> bool) -> Vec<(EntryId, Key)> {
        let mut found = Vec::new();
        for tag in self.0.iter().filter(|tag| such(tag.key().as_str())) {
            found.extend(tag.value().iter().map(|(id, key)| (*id, key.clone())));
        }
        found
    }

    /// Tags that at least one entry carries.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
