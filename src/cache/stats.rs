//! What a cache counts.

use super::tally::Tally;

/// Counts of one cache since it was built, and its present size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Look-ups served fresh, negative entries included.
    pub hits: u64,
    /// Look-ups that found nothing to serve.
    pub misses: u64,
    /// Entries found that could not be proved fresh: served flagged, bypassed (a miss as well) or failed.
    pub stale: u64,
    /// Fills that were kept.
    pub kept: u64,
    /// Fills that were refused because an event or reset overtook the read.
    pub refused: u64,
    /// Entries dropped by events and resets.
    pub evicted: u64,
    /// Entries displaced for room.
    pub displaced: u64,
    /// Loaders run.
    pub loads: u64,
    /// Loaders that failed, panicked or passed their deadline.
    pub load_errors: u64,
    /// Entries held now.
    pub entries: usize,
    /// Tags that an entry carries now.
    pub tags: usize,
    /// Keys that are being loaded now.
    pub loading: usize,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: Tally,
    pub(super) misses: Tally,
    pub(super) stale: Tally,
    pub(super) kept: Tally,
    pub(super) refused: Tally,
    pub(super) evicted: Tally,
    pub(super) displaced: Tally,
    pub(super) loads: Tally,
    pub(super) load_errors: Tally,
}

impl Counters {
    pub(super) fn read(&self, entries: usize, tags: usize, loading: usize) -> Stats {
        Stats {
            hits: self.hits.get(),
            misses: self.misses.get(),
            stale: self.stale.get(),
            kept: self.kept.get(),
            refused: self.refused.get(),
            evicted: self.evicted.get(),
            displaced: self.displaced.get(),
            loads: self.loads.get(),
            load_errors: self.load_errors.get(),
            entries,
            tags,
            loading,
        }
    }
}
