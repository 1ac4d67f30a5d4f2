//! What the caches of one instance share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::memory::Memory;
use super::position::Position;
use crate::config::{CacheConfig, Config};
use crate::sink::Sinks;

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

    /// The position that hits and tokens are judged by.
    pub fn position(&self) -> &Arc<Position> {
        &self.position
    }
}
