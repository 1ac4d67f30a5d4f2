//! The near cache.
//!
//! > An entry that was read at snapshot R survives an event of transaction x if and only if R sees x.
//!
//! How the rule is kept without a lock on the hit path:
//!
//! ```text
//!   store:  [ memory.read ---- check R, index, insert ---- ]        apply:  [ memory.write: record x ]
//!                                                                           then evict what R does not see x
//! ```
//!
//! The two sections exclude each other. A store that comes first has inserted before x is recorded, so the
//! eviction that follows the recording finds it; a store that comes second sees the record and is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quick_cache::{DefaultHashBuilder, Lifecycle, UnitWeighter};

use super::builder::CacheBuilder;
use super::flight::Flights;
use super::index::{EntryId, TagIndex};
use super::lookup::{Freshness, Lookup};
use super::position::Position;
use super::prefix::ByLength;
use super::shared::{Shared, Stored};
use super::stats::{Counters, Stats};
use super::token::FillToken;
use crate::config::WhenStale;
use crate::event::{Key, LoggedEvent, Tag};
use crate::sink::{Origin, Reset, Sink};
use crate::snapshot::{Snapshot, Xid};

/// A bounded cache of `V` by [`Key`] that events keep fresh. Clones are handles to the same cache.
///
/// - A value read before a change is never served after the change was applied here (G2).
/// - A hit is either provably no older than `max_staleness` or handled by the declared policy (G3).
/// - A hit takes no lock but the read lock of one shard.
///
/// The cache is let go when its last handle is dropped.
#[derive(Debug)]
pub struct NearCache<V> {
    pub(super) core: Arc<Core<V>>,
}

impl<V> Clone for NearCache<V> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

/// An entry; immutable once it is in the cache.
#[derive(Debug)]
pub(super) struct Entry<V> {
    /// `None`: known to be absent.
    value: Option<V>,
    /// R.
    read_at: Arc<Snapshot>,
    generation: u64,
    id: EntryId,
    /// On the clock that counts suspension; nanoseconds.
    expires: i64,
    tags: Box<[Tag]>,
}

type Entries<V> = quick_cache::sync::Cache<Key, Arc<Entry<V>>, UnitWeighter, DefaultHashBuilder, Collect>;

/// Hands every entry that an insert displaces (evicted for room, replaced under the same key, or refused at
/// the door) to the inserter, who takes its records out once the shard lock is released.
#[derive(Debug, Clone, Default)]
pub(super) struct Collect;

impl<V> Lifecycle<Key, Arc<Entry<V>>> for Collect {
    type RequestState = Vec<(Key, Arc<Entry<V>>)>;

    fn on_evict(&self, displaced: &mut Self::RequestState, key: Key, entry: Arc<Entry<V>>) {
        displaced.push((key, entry));
    }
}

/// What the handles of one cache share.
#[derive(Debug)]
pub(super) struct Core<V> {
    pub(super) shared: Arc<Shared>,
    /// The shared one, one step nearer to the hit.
    position: Arc<Position>,
    entries: Entries<V>,
    index: TagIndex,
    next_id: AtomicU64,
    pub(super) flights: Flights<V>,
    pub(super) counters: Counters,
    pub(super) settings: Settings,
}

/// What the builder fixed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) capacity: usize,
    pub(super) ttl: Duration,
    pub(super) when_stale: WhenStale,
    pub(super) max_staleness: Duration,
    pub(super) load_timeout: Duration,
}

impl<V: Clone + Send + Sync + 'static> NearCache<V> {
    /// Starts building a cache of this instance.
    pub fn builder(shared: Arc<Shared>) -> CacheBuilder<V> {
        CacheBuilder::new(shared)
    }

    pub(super) fn attach(shared: Arc<Shared>, settings: Settings) -> Self {
        let core = Arc::new(Core {
            entries: Entries::with(
                settings.capacity,
                settings.capacity as u64,
                UnitWeighter,
                DefaultHashBuilder::default(),
                Collect,
            ),
            index: TagIndex::default(),
            next_id: AtomicU64::new(0),
            flights: Flights::default(),
            counters: Counters::default(),
            settings,
            position: shared.position.clone(),
            shared,
        });
        core.shared
            .sinks
            .attach(|| Arc::new(Attached(Arc::downgrade(&core))));
        Self { core }
    }

    /// Looks a key up.
    ///
    /// An entry counts only within its time to live and within the present generation. What happens when the
    /// cache cannot be proved fresh is the policy's to say; it is never served as fresh.
    #[inline]
    pub fn get(&self, key: &Key) -> Lookup<V> {
        let lookup = self.core.look(key);
        match &lookup {
            Lookup::Hit(_, Freshness::Fresh) | Lookup::Absent(Freshness::Fresh) => {
                self.core.counters.hits.add(1)
            }
            Lookup::Hit(..) | Lookup::Absent(_) | Lookup::Stale => self.core.counters.stale.add(1),
            Lookup::Miss => self.core.counters.misses.add(1),
        }
        lookup
    }

    /// The token for a value about to be read; `None` while there is no cursor (not started, disabled, or just
    /// reset): then nothing can be stored.
    pub fn token(&self) -> Option<FillToken> {
        self.core.shared.position.token()
    }

    /// Stores what a read found (`None`: that there is nothing), if no event has overtaken it since.
    ///
    /// The token must have been issued before the read began; see [`FillToken`].
    pub fn store(&self, key: &Key, value: Option<V>, tags: &[Tag], token: &FillToken) -> Stored {
        self.core.store(key, value, tags, token)
    }

    /// Drops the entry under the key, here and now. To invalidate, emit an event: this neither reaches other
    /// instances nor stops a load in flight.
    pub fn remove(&self, key: &Key) {
        self.core.evict_if(key, |_| true);
    }

    /// Entries held, expired and hidden ones included.
    pub fn len(&self) -> usize {
        self.core.entries.len()
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts since the cache was built.
    pub fn stats(&self) -> Stats {
        let core = &*self.core;
        core.counters
            .read(core.entries.len(), core.index.len(), core.flights.len())
    }
}

impl<V: Clone + Send + Sync + 'static> Core<V> {
    /// The look-up, without counting.
    #[inline]
    pub(super) fn look(&self, key: &Key) -> Lookup<V> {
        let Some(entry) = self.entries.get(key) else {
            return Lookup::Miss;
        };
        let position = &*self.position;
        let now = position.now();
        if entry.generation != position.generation() || now.boot >= entry.expires {
            self.evict_if(key, |held| held.id == entry.id);
            return Lookup::Miss;
        }
        let freshness = if position.is_fresh_at(now, self.settings.max_staleness) {
            Freshness::Fresh
        } else {
            match self.settings.when_stale {
                WhenStale::Bypass => {
                    self.counters.stale.add(1);
                    return Lookup::Miss;
                }
                WhenStale::Serve => Freshness::Stale,
                WhenStale::Fail => return Lookup::Stale,
            }
        };
        match &entry.value {
            Some(value) => Lookup::Hit(value.clone(), freshness),
            None => Lookup::Absent(freshness),
        }
    }

    pub(super) fn store(&self, key: &Key, value: Option<V>, tags: &[Tag], token: &FillToken) -> Stored {
        let ttl = i64::try_from(self.settings.ttl.as_nanos()).unwrap_or(i64::MAX);
        let entry = Arc::new(Entry {
            value,
            read_at: token.snapshot().clone(),
            generation: token.generation(),
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            expires: self.position.now().boot.saturating_add(ttl),
            tags: tags.into(),
        });
        let mut displaced = Vec::new();
        let stored = self.shared.admit(key, tags, token, || {
            self.index.add(&entry.tags, entry.id, key);
            self.entries
                .insert_with_lifecycle(key.clone(), entry, &mut displaced);
        });
        if stored == Stored::Refused {
            self.counters.refused.add(1);
            return stored;
        }
        self.counters.kept.add(1);
        for (gone, entry) in displaced {
            self.index.remove(&entry.tags, entry.id);
            self.counters.displaced.add(u64::from(gone != *key));
        }
        stored
    }

    /// Evicts the entry under the key if it is such an entry; true if it was.
    fn evict_if(&self, key: &Key, such: impl FnOnce(&Entry<V>) -> bool) -> bool {
        // The id pins the records to this very entry.
        let Some((_, entry)) = self.entries.remove_if(key, |entry| such(entry)) else {
            return false;
        };
        self.index.remove(&entry.tags, entry.id);
        true
    }

    /// Evicts what the events make stale. They have been recorded before.
    fn evict(&self, events: &[Arc<LoggedEvent>]) {
        let mut prefixes = ByLength::<Vec<Xid>>::default();
        let mut evicted = 0;
        for event in events {
            let x = event.xid;
            if event.empties_everything() {
                // The empty prefix begins every key.
                prefixes.at(&crate::event::Prefix::stored("")).0.push(x);
                continue;
            }
            for key in &event.keys {
                evicted += u64::from(self.evict_if(key, |entry| !entry.read_at.sees(x)));
            }
            for tag in &event.tags {
                for (id, key) in self.index.carriers(tag) {
                    let such = |entry: &Entry<V>| entry.id == id && !entry.read_at.sees(x);
                    evicted += u64::from(self.evict_if(&key, such));
                }
            }
            for prefix in &event.prefixes {
                prefixes.at(prefix).0.push(x);
            }
        }
        if !prefixes.is_empty() {
            evicted += self.evict_prefixes(&prefixes);
        }
        if evicted > 0 {
            self.counters.evicted.add(evicted);
        }
    }

    /// One pass over all entries for all prefixes of a batch. Entries carry their tags, so it needs no index.
    fn evict_prefixes(&self, prefixes: &ByLength<Vec<Xid>>) -> u64 {
        let generation = self.shared.position.generation();
        let mut evicted = 0;
        for (key, entry) in self.entries.iter() {
            let missed = |text: &str| {
                prefixes
                    .of(text)
                    .any(|xids| xids.iter().any(|xid| !entry.read_at.sees(*xid)))
            };
            if entry.generation != generation
                || missed(key.as_str())
                || entry.tags.iter().any(|tag| missed(tag.as_str()))
            {
                evicted += u64::from(self.evict_if(&key, |held| held.id == entry.id));
            }
        }
        evicted
    }

    fn clear(&self) {
        let mut evicted = 0;
        for (_, entry) in self.entries.drain() {
            self.index.remove(&entry.tags, entry.id);
            evicted += 1;
        }
        self.counters.evicted.add(evicted);
    }
}

/// The cache as its feed sees it: the feed does not keep a cache alive that nobody can ask any more.
struct Attached<V>(Weak<Core<V>>);

impl<V: Clone + Send + Sync + 'static> Sink for Attached<V> {
    fn apply(&self, events: &[Arc<LoggedEvent>], _origin: Origin) {
        if let Some(core) = self.0.upgrade() {
            core.evict(events);
        }
    }

    fn reset(&self, _cause: Reset) {
        if let Some(core) = self.0.upgrade() {
            core.clear();
        }
    }

    fn is_live(&self) -> bool {
        self.0.strong_count() > 0
    }
}
