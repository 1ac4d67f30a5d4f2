//! The near cache and the caches that may be attached, as one: what holds for one holds for all.

use std::sync::Arc;

use dashmap::DashMap;
use pgevict::cache::{Attached, FillToken, Lookup, NearCache, Stored};
use pgevict::event::{Key, Tag};

use crate::world::World;

/// A cache under the rule.
pub(crate) trait Kind<V>: Send + Sync {
    fn get(&self, key: &Key) -> Option<V>;
    fn store(&self, key: &Key, value: V, tags: &[Tag], token: &FillToken) -> Stored;
    fn entries(&self) -> usize;
    fn tags(&self) -> usize;
}

/// Makes a cache of so many entries; a `DashMap` has no limit.
pub(crate) type Make<V> = fn(&World, usize) -> Arc<dyn Kind<V>>;

pub(crate) fn kinds<V: Clone + Send + Sync + 'static>() -> [(&'static str, Make<V>); 4] {
    [
        ("near", |world, capacity| {
            Arc::new(world.builder::<V>().capacity(capacity).build())
        }),
        ("moka", |world, capacity| {
            Arc::new(world.attach(moka::sync::Cache::<String, V>::new(capacity as u64)))
        }),
        ("quick_cache", |world, capacity| {
            Arc::new(world.attach(quick_cache::sync::Cache::<Arc<str>, V>::new(capacity)))
        }),
        ("DashMap", |world, _| {
            Arc::new(world.attach(DashMap::<Key, V>::new()))
        }),
    ]
}

impl<V: Clone + Send + Sync + 'static> Kind<V> for NearCache<V> {
    fn get(&self, key: &Key) -> Option<V> {
        match NearCache::get(self, key) {
            Lookup::Hit(value, _) => Some(value),
            _ => None,
        }
    }

    fn store(&self, key: &Key, value: V, tags: &[Tag], token: &FillToken) -> Stored {
        NearCache::store(self, key, Some(value), tags, token)
    }

    fn entries(&self) -> usize {
        self.stats().entries
    }

    fn tags(&self) -> usize {
        self.stats().tags
    }
}

impl<V: Clone + Send + Sync + 'static> Kind<V> for Attached<DashMap<Key, V>> {
    fn get(&self, key: &Key) -> Option<V> {
        self.cache().get(key).map(|value| value.clone())
    }

    fn store(&self, key: &Key, value: V, tags: &[Tag], token: &FillToken) -> Stored {
        Attached::store(self, key, tags, token, |cache| {
            drop(cache.insert(key.clone(), value))
        })
    }

    fn entries(&self) -> usize {
        self.cache().len()
    }

    fn tags(&self) -> usize {
        Attached::tags(self)
    }
}

impl<V: Clone + Send + Sync + 'static> Kind<V> for Attached<moka::sync::Cache<String, V>> {
    fn get(&self, key: &Key) -> Option<V> {
        self.cache().get(key.as_str())
    }

    fn store(&self, key: &Key, value: V, tags: &[Tag], token: &FillToken) -> Stored {
        Attached::store(self, key, tags, token, |cache| {
            cache.insert(key.as_str().to_owned(), value);
        })
    }

    fn entries(&self) -> usize {
        self.cache().iter().count()
    }

    fn tags(&self) -> usize {
        Attached::tags(self)
    }
}

impl<V: Clone + Send + Sync + 'static> Kind<V> for Attached<quick_cache::sync::Cache<Arc<str>, V>> {
    fn get(&self, key: &Key) -> Option<V> {
        self.cache().get(key.as_str())
    }

    fn store(&self, key: &Key, value: V, tags: &[Tag], token: &FillToken) -> Stored {
        Attached::store(self, key, tags, token, |cache| {
            cache.insert(Arc::from(key.as_str()), value);
        })
    }

    fn entries(&self) -> usize {
        self.cache().len()
    }

    fn tags(&self) -> usize {
        Attached::tags(self)
    }
}
