//! A cache that the application has already, kept free of stale entries.
//!
//! ```text
//!   store:  [ memory.read ---- check R ---- [ stripe: tags, insert ] ]      apply:  [ memory.write: record x ]
//!                                                                                   then, by key: [ stripe: evict ]
//! ```
//!
//! As in the near cache the first section of each excludes the other. What differs: the entries do not carry their R,
//! so an event drops them whether or not they have seen it.

use std::sync::Arc;

use super::evict::Evict;
use super::prefix::ByLength;
use super::records::Records;
use super::shared::{Shared, Stored};
use super::token::FillToken;
use crate::event::{Key, LoggedEvent, Prefix, Tag};
use crate::sink::{Origin, Reset, Sink};

/// A cache of another kind that events keep free of what is stale. Clones are handles to the same.
///
/// ```no_run
/// use dashmap::DashMap;
/// use pgevict::cache::Attached;
/// use pgevict::{Pgevict, key, tag};
///
/// # async fn read_product(_: i64) -> Result<String, std::io::Error> { Ok(String::new()) }
/// # async fn run(pgevict: Pgevict) -> Result<(), std::io::Error> {
/// let products: Attached<DashMap<String, String>> = pgevict.attach(DashMap::new());
/// // Or a moka::sync::Cache (feature `moka`), or a quick_cache::sync::Cache.
///
/// let key = key!("product:{}", 42);
/// if products.is_fresh() && let Some(hit) = products.cache().get(key.as_str()) {
///     println!("{}", *hit);
///     return Ok(());
/// }
/// let token = products.token(); // first the token,
/// let product = read_product(42).await?; // then the read,
/// if let Some(token) = token {
///     // then check and insert, in one step.
///     let _ = products.store(&key, &[tag!("category:{}", 7)], &token, |cache| {
///         cache.insert(key.as_str().to_owned(), product.clone());
///     });
/// }
/// # Ok(())
/// # }
/// ```
///
/// - What was stored through [`store`](Self::store) is never found by a look-up that begins after an event that it had
///   not seen was applied here (G2).
/// - What was put into the cache in another way (its `insert`, its own loaders) is dropped by events that name its key
///   or a prefix of it, and by flushes. It has no tags, and a load of the cache's own that is under way puts back what it
///   read before the event. Do not.
/// - G3 is the caller's: the cache knows nothing of staleness. Ask [`is_fresh`](Self::is_fresh) before a hit is used.
/// - A reference into a `DashMap` that is held across an `await` or a `store` holds up the events of all caches.
/// - An event drops an entry even if it was read after the event's commit: an own write, applied at once and then
///   brought by the feed, may cost one load more.
///
/// The cache stays attached for as long as the instance lives, also when the handles are gone.
#[derive(Debug)]
pub struct Attached<C> {
    core: Arc<Core<C>>,
}

impl<C> Clone for Attached<C> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

#[derive(Debug)]
struct Core<C> {
    shared: Arc<Shared>,
    cache: C,
    records: Records,
}

impl<C: Evict> Attached<C> {
    /// Attaches a cache to the feed. What it holds is dropped: nobody knows when that was read.
    pub fn new(shared: Arc<Shared>, cache: C) -> Self {
        let core = Arc::new(Core {
            shared,
            cache,
            records: Records::default(),
        });
        core.shared.sinks.attach(|| {
            core.cache.flush();
            core.clone()
        });
        Self { core }
    }

    /// The cache itself, for look-ups.
    pub fn cache(&self) -> &C {
        &self.core.cache
    }

    /// The token for a value about to be read; `None` while there is no cursor (not started, disabled, or just reset):
    /// then nothing can be stored.
    pub fn token(&self) -> Option<FillToken> {
        self.core.shared.position.token()
    }

    /// Runs `insert`, which puts what was read under the token into the cache, if no event has overtaken the read.
    ///
    /// The token must have been issued before the read began; see [`FillToken`]. Other reads:
    /// [`FillToken::marked`]. `insert` puts one entry under this key; it runs under the locks that keep events away, so
    /// neither it nor a listener that the cache calls may block or use this handle.
    pub fn store(&self, key: &Key, tags: &[Tag], token: &FillToken, insert: impl FnOnce(&C)) -> Stored {
        let Core {
            shared,
            cache,
            records,
        } = &*self.core;
        let stored = shared.admit(key, tags, token, || {
            records.replace(key, tags, || insert(cache));
        });
        if records.sweep_is_due() {
            records.sweep(|key| cache.holds(key));
        }
        stored
    }

    /// True when this instance proved within `max_staleness` that it had seen everything.
    pub fn is_fresh(&self) -> bool {
        let Shared {
            position,
            max_staleness,
            ..
        } = &*self.core.shared;
        position.is_fresh(*max_staleness)
    }

    /// Entries whose tags are recorded: at most 1,024, or twice as many as were held when they were last counted.
    pub fn tagged(&self) -> usize {
        self.core.records.len()
    }

    /// Tags recorded.
    pub fn tags(&self) -> usize {
        self.core.records.tags()
    }
}

impl<C: Evict> Core<C> {
    fn evict(&self, key: &Key) {
        self.records.remove(key, || self.cache.evict(key.as_str()));
    }

    fn flush(&self) {
        self.cache.flush();
        self.sweep();
    }

    /// What was dropped by the lot has left its records.
    fn sweep(&self) {
        self.records.sweep(|key| self.cache.holds(key));
    }
}

impl<C: Evict> Sink for Core<C> {
    fn apply(&self, events: &[Arc<LoggedEvent>], _origin: Origin) {
        let mut prefixes = ByLength::<()>::default();
        for event in events {
            if event.empties_everything() {
                prefixes.at(&Prefix::stored(""));
                continue;
            }
            for key in &event.keys {
                self.evict(key);
            }
            for tag in &event.tags {
                self.records.carriers(tag).for_each(|key| self.evict(&key));
            }
            for prefix in &event.prefixes {
                prefixes.at(prefix);
            }
        }
        let such = |text: &str| prefixes.of(text).next().is_some();
        if such("") {
            self.flush();
        } else if !prefixes.is_empty() {
            self.records.carriers_where(such).for_each(|key| self.evict(&key));
            self.cache.evict_where(&such);
            self.sweep();
        }
    }

    fn reset(&self, _cause: Reset) {
        self.flush();
    }
}
