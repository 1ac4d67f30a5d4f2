//! Building a near cache.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::near::{NearCache, Settings};
use super::shared::Shared;
use crate::config::WhenStale;

/// Settings of one cache; what is not said comes from the instance's configuration.
#[derive(Debug)]
#[must_use]
pub struct CacheBuilder<V> {
    shared: Arc<Shared>,
    settings: Settings,
    of: PhantomData<fn() -> V>,
}

impl<V: Clone + Send + Sync + 'static> CacheBuilder<V> {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let settings = Settings {
            capacity: shared.defaults.capacity,
            ttl: shared.defaults.ttl,
            when_stale: shared.defaults.when_stale,
            max_staleness: shared.max_staleness,
            load_timeout: shared.defaults.load_timeout,
        };
        Self {
            shared,
            settings,
            of: PhantomData,
        }
    }

    /// Most entries; at least 1. When full, what is asked for least makes room.
    pub fn capacity(mut self, entries: usize) -> Self {
        self.settings.capacity = entries.max(1);
        self
    }

    /// Longest life of an entry, by a clock that counts suspension. Zero: nothing is ever a hit.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// What becomes of a hit that cannot be proved fresh.
    pub fn when_stale(mut self, policy: WhenStale) -> Self {
        self.settings.when_stale = policy;
        self
    }

    /// Oldest proof of freshness with which a hit counts as fresh; at least two polls, or idle caches miss.
    pub fn max_staleness(mut self, limit: Duration) -> Self {
        self.settings.max_staleness = limit;
        self
    }

    /// Deadline of one load, the wait for its turn included. At most the instance's: the memory of recent
    /// events is only that long.
    pub fn load_timeout(mut self, limit: Duration) -> Self {
        self.settings.load_timeout = limit.min(self.shared.defaults.load_timeout);
        self
    }

    /// Attaches the cache to the feed. From here on every event that is applied reaches it.
    pub fn build(mut self) -> NearCache<V> {
        self.settings.capacity = self.settings.capacity.max(1);
        NearCache::attach(self.shared, self.settings)
    }
}
