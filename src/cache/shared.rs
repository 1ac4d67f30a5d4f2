//! What the caches of one instance share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::memory::Memory;
use super::position::Position;
use super::token::FillToken;
use crate::config::{CacheConfig, Config};
use crate::event::{Key, Tag};
use crate::sink::Sinks;

/// What became of a value that was to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Stored {
    /// It is in the cache.
    Kept,
    /// An event or a reset overtook the read, or the token is too old to tell: the value may be used once, by
    /// the caller, and is not in the cache.
    Refused,
}

/// Position, memory of recent events, sinks and the cap on loads: one for all caches of an instance.
#[derive(Debug)]
pub struct Shared {
    pub(super) position: Arc<Position>,
    pub(super) sinks: Arc<Sinks>,
    pub(super) memory: Arc<Memory>,
    pub(super) loads: Semaphore,
    pub(super) defaults: CacheConfig,
    pub(super) max_staleness: Duration,
}

impl Shared {
    /// Attaches the memory of recent events to `sinks`.
    ///
    /// Called before the feed starts, so that the memory comes before every cache and misses nothing. Caches
    /// may be built at any time after; nothing is stored before the feed has published a cursor.
    pub fn new(position: Arc<Position>, sinks: Arc<Sinks>, config: &Config) -> Arc<Self> {
        let memory = sinks.attach(|| Arc::new(Memory::new(position.clone(), config.cache.load_timeout)));
        Arc::new(Self {
            position,
            sinks,
            memory,
            loads: Semaphore::new(config.cache.max_loads.max(1)),
            defaults: config.cache.clone(),
            max_staleness: config.max_staleness,
        })
    }

    /// Checks that no event or reset has overtaken a read, and inserts what it gave, in one step: none is recorded
    /// in between.
    pub(super) fn admit(&self, key: &Key, tags: &[Tag], token: &FillToken, insert: impl FnOnce()) -> Stored {
        let memory = self.memory.read();
        if token.generation() != self.position.generation() || memory.overtaken(token.snapshot(), key, tags) {
            return Stored::Refused;
        }
        insert();
        Stored::Kept
    }

    /// The position that hits and tokens are judged by.
    pub fn position(&self) -> &Arc<Position> {
        &self.position
    }
}
