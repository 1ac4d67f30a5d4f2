//! What a cache of another kind must be able to do, and how the usual ones do it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use dashmap::DashMap;
use quick_cache::{Lifecycle, Weighter};

/// A cache that drops what it is told to; implemented for `DashMap`, [`quick_cache::sync::Cache`] and, with feature
/// `moka`, `moka::sync::Cache`, whose keys are texts (`String`, `Arc<str>`, [`Key`](crate::Key)).
///
/// When a method has returned, no later look-up may find what was in the cache when it was called. Beware of what a
/// cache does beside its map: a loader of its own that is running may put back what was just dropped. Entries are put
/// in by [`Attached::store`](super::Attached::store) only.
///
/// None may block for long, panic, or call pgevict: they are called while events are applied.
pub trait Evict: Send + Sync + 'static {
    /// Drops the entry under the key, if there is one.
    fn evict(&self, key: &str);

    /// Drops every entry whose key is such.
    fn evict_where(&self, such: &dyn Fn(&str) -> bool);

    /// Drops everything.
    fn flush(&self);

    /// True when there is an entry under the key. May be true for one that has expired, never false for one that a
    /// look-up would find.
    fn holds(&self, key: &str) -> bool;
}

impl<C: Evict + ?Sized> Evict for Arc<C> {
    fn evict(&self, key: &str) {
        (**self).evict(key);
    }

    fn evict_where(&self, such: &dyn Fn(&str) -> bool) {
        (**self).evict_where(such);
    }

    fn flush(&self) {
        (**self).flush();
    }

    fn holds(&self, key: &str) -> bool {
        (**self).holds(key)
    }
}

impl<K, V, S> Evict for DashMap<K, V, S>
where
    K: Borrow<str> + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn evict(&self, key: &str) {
        self.remove(key);
    }

    fn evict_where(&self, such: &dyn Fn(&str) -> bool) {
        self.retain(|key, _| !such(key.borrow()));
    }

    fn flush(&self) {
        self.clear();
    }

    fn holds(&self, key: &str) -> bool {
        self.contains_key(key)
    }
}

/// ```no_run
/// # async fn read_product(_: i64) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # async fn run(pgevict: pgevict::Pgevict) -> Result<(), std::io::Error> {
/// use std::sync::Arc;
///
/// use pgevict::{key, tag};
///
/// let products = pgevict.attach(quick_cache::sync::Cache::<Arc<str>, String>::new(10_000));
/// let key = key!("product:{}", 42);
/// let token = products.token();
/// let product = read_product(42).await?;
/// if let Some(token) = token {
///     let _ = products.store(&key, &[tag!("category:{}", 7)], &token, |cache| {
///         cache.insert(key.as_str().into(), product);
///     });
/// }
/// let hit: Option<String> = products.cache().get(key.as_str());
/// # Ok(())
/// # }
/// ```
impl<K, V, W, B, L> Evict for quick_cache::sync::Cache<K, V, W, B, L>
where
    K: Borrow<str> + Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    W: Weighter<K, V> + Clone + Send + Sync + 'static,
    B: BuildHasher + Clone + Send + Sync + 'static,
    L: Lifecycle<K, V> + Clone + Send + Sync + 'static,
{
    fn evict(&self, key: &str) {
        self.remove(key);
    }

    // By key, never by its `retain`: that lets a load in flight store what was just removed.
    fn evict_where(&self, such: &dyn Fn(&str) -> bool) {
        for (key, _) in self.iter().filter(|(key, _)| such(key.borrow())) {
            self.remove(key.borrow());
        }
    }

    fn flush(&self) {
        self.evict_where(&|_| true);
    }

    fn holds(&self, key: &str) -> bool {
        self.contains_key(key)
    }
}
