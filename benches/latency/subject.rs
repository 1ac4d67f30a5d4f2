//! What is measured: one instance with a near cache.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pgevict::cache::{NearCache, Stored};
use pgevict::config::Config;
use pgevict::lab::Cluster;
use pgevict::{Key, Pgevict};

use crate::ledger::Ledger;
use crate::schedule::System;

/// An instance whose cache holds one entry for each event to come.
pub(crate) struct Subject {
    pgevict: Pgevict,
    cache: NearCache<Arc<Witness>>,
    ledger: Arc<Ledger>,
}

/// A cached value that notes when the cache has let go of it.
pub(crate) struct Witness {
    ledger: Arc<Ledger>,
    event: usize,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.ledger.seen(self.event);
    }
}

impl Subject {
    /// Starts the instance; pgevict is installed.
    pub(crate) async fn start(cluster: &Cluster, ledger: Arc<Ledger>) -> Result<Self> {
        let pgevict = Pgevict::builder(Config::from_url(cluster.url())?).start().await?;
        // Nothing may leave the cache but by an event.
        let day = Duration::from_secs(86_400);
        let cache = pgevict.cache().capacity(1_000_000).ttl(day).build();
        Ok(Self {
            pgevict,
            cache,
            ledger,
        })
    }

    /// How the instance came by its events.
    pub(crate) fn told(&self) -> String {
        let status = self.pgevict.status();
        format!(
            "pgevict: {} wakes, {} fetches, {} events, {} missed wakes, degraded: {:?}",
            status.wakes, status.fetches, status.events, status.missed_wakes, status.degraded
        )
    }

    /// A reset empties the cache without an event: what was measured then means nothing.
    pub(crate) fn must_not_have_been_reset(&self) -> Result<()> {
        let resets = self.pgevict.status().resets;
        ensure!(resets.is_empty(), "the instance was reset: {resets:?}");
        Ok(())
    }

    /// Leaves the log cleanly.
    pub(crate) async fn stop(&self) {
        self.pgevict.shutdown().await;
    }
}

impl System for Subject {
    const WRITE: &'static str = "select pgevict.emit(array['k:' || $1])";

    fn expect(&self, event: usize) -> Result<()> {
        let token = self.cache.token().context("the instance has no cursor")?;
        let witness = Arc::new(Witness {
            ledger: self.ledger.clone(),
            event,
        });
        let key = Key::new(format!("k:{event}"))?;
        let stored = self.cache.store(&key, Some(witness), &[], &token);
        ensure!(stored == Stored::Kept, "the entry of event {event} was not kept");
        Ok(())
    }
}
