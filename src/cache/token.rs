//! The fill token: what a load must have seen for its value to be kept.

use std::sync::Arc;

use super::mark::Mark;
use super::trail::Trail;
use crate::snapshot::Snapshot;

/// Taken before a value is read; needed to store it.
///
/// It stands for a snapshot R with the guarantee that the read sees all that R sees. The feed applies events
/// first and publishes the cursor after, so all that a published cursor sees was applied and committed before
/// the token was issued; a read *on the primary* that starts later sees it too. For any other read there is
/// [`marked`](Self::marked). The value is kept if no event that R does not see touches its key or tags
/// ([`NearCache::store`](super::NearCache::store)).
///
/// Cheap to clone; may be sent to another thread. A flush or reset voids every token issued before it.
#[derive(Debug, Clone)]
pub struct FillToken {
    snapshot: Arc<Snapshot>,
    generation: u64,
    /// Cursors up to the token's own; `None` where no mark is understood.
    trail: Option<Arc<Trail>>,
}

impl FillToken {
    pub(super) fn new(snapshot: Arc<Snapshot>, generation: u64, trail: Option<Arc<Trail>>) -> Self {
        Self {
            snapshot,
            generation,
            trail,
        }
    }

    /// The same token for a value that was read at exactly this snapshot.
    ///
    /// For reads that may be older than the token, such as in a transaction that was already open. The snapshot
    /// must have been taken by the statement that reads, or before it.
    ///
    /// Never `pg_current_snapshot()` of a standby: it lists nobody as in progress, and so claims to have seen
    /// what it has not. Of a snapshot taken there only the ids below its `xmin` count as seen;
    /// [`marked`](Self::marked) knows that, and whether it is the same log at all.
    #[must_use]
    pub fn read_at(mut self, snapshot: Arc<Snapshot>) -> Self {
        self.snapshot = snapshot;
        self
    }

    /// The same token for a value that was read as the mark says: anywhere, at any time. `None` when it must not be
    /// stored: it is of another log or another life of the server, or was read by a transaction that has written.
    #[must_use]
    pub fn marked(self, mark: &Mark) -> Option<Self> {
        let read_at = mark.read_at(self.trail.as_ref()?)?;
        Some(self.read_at(read_at))
    }

    /// R: the value was read at this snapshot or a later one.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The generation of the position that it was issued in.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}
