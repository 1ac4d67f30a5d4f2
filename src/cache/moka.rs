//! `moka::sync::Cache`, with feature `moka`.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use moka::sync::Cache;

use super::evict::Evict;

/// Nothing that moka offers stops its `get_with` from storing what it began to load before: never fill such a cache by
/// it.
///
/// ```no_run
/// # async fn read_product(_: i64) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # async fn run(pgevict: pgevict::Pgevict) -> Result<(), std::io::Error> {
/// use pgevict::{key, tag};
///
/// let products = pgevict.attach(moka::sync::Cache::<String, String>::new(10_000));
/// let key = key!("product:{}", 42);
/// let token = products.token();
/// let product = read_product(42).await?;
/// if let Some(token) = token {
///     let _ = products.store(&key, &[tag!("category:{}", 7)], &token, |cache| {
///         cache.insert(key.as_str().to_owned(), product);
///     });
/// }
/// let hit: Option<String> = products.cache().get(key.as_str());
/// # Ok(())
/// # }
/// ```
impl<K, V, S> Evict for Cache<K, V, S>
where
    K: Borrow<str> + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    fn evict(&self, key: &str) {
        self.invalidate(key);
    }

    // `invalidate_entries_if` works in the background and is not available by default.
    fn evict_where(&self, such: &dyn Fn(&str) -> bool) {
        for (key, _) in self.iter().filter(|(key, _)| such((**key).borrow())) {
            self.invalidate((*key).borrow());
        }
    }

    fn flush(&self) {
        self.invalidate_all();
        // It goes by time, and leaves what was put in within the same tick.
        self.evict_where(&|_| true);
    }

    fn holds(&self, key: &str) -> bool {
        self.contains_key(key)
    }
}
