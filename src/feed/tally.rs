//! What the pages of one complete fetch brought.

use crate::event::{Announced, LoggedEvent};

/// Whether more pages of the target are outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    More,
    Last,
}

/// What one complete fetch brought.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) pages: u64,
    pub(super) events: u64,
    pub(super) announced: u64,
}

impl Tally {
    pub(super) fn count(&mut self, events: &[LoggedEvent]) {
        self.pages += 1;
        self.events += events.len() as u64;
        self.announced += events
            .iter()
            .filter(|event| event.announced != Announced::Silent)
            .count() as u64;
    }
}
