//! Cursor and pages: how far a reader has come, and what its next fetch must return.
//!
//! ```text
//!   base --------------------------> target (the snapshot of the first, full page)
//!     |  page 1 | page 2 | page 3 |     |
//!     +--after--+--after-+--------+---> base := target
//! ```
//!
//! A page that is full pins a *target*. Further pages read "not seen by base, seen by target, above after, in
//! (xid, id) order"; the last page makes the target the new base.

use super::{Snapshot, Xid};
use crate::error::{Error, Result};

/// Place of an event in the order of one fetch: (xid, id).
pub type Place = (Xid, i64);

/// How far a reader has come: all that the base sees has been handled, and of the target's part all up to `after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    base: Snapshot,
    page: Option<(Snapshot, Place)>,
}

/// What the fetch statement binds: its two arms, each with an index condition of its own.
///
/// With *upper* = `target`, or the statement's own snapshot when there is none, the arms are
///
/// 1. `(xid, id) > from and xid < xmax(upper) and xid <> all(in_progress(upper))`
/// 2. `xid = any(base_in_progress) and (xid, id) > after`, under the same two upper conditions,
///
/// each in (xid, id) order with the page size as its limit, then merged in that order and limited once more.
/// Together they return what [`Cursor::wants`] wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchBounds<'a> {
    /// Arm 1 begins above this: below the first event that the base cannot have seen, or `after` where that is
    /// further. One bound, because with two (`xid >= base_xmax` beside `after`) the server may begin at the lower
    /// one and walk all the way.
    pub from: Place,
    /// The ids of arm 2, ascending.
    pub base_in_progress: &'a [Xid],
    /// Upper bound; `None`: the snapshot of the statement itself.
    pub target: Option<&'a Snapshot>,
    /// Place of the last event handled; below every event when there is no page outstanding.
    pub after: Place,
}

impl Cursor {
    /// Below every event: no transaction has the id 0.
    const START: Place = (Xid(0), 0);

    /// All that `base` sees has been handled.
    pub fn new(base: Snapshot) -> Self {
        Self { base, page: None }
    }

    /// A cursor that was stored between two pages.
    ///
    /// # Errors
    /// Invalid unless `target` sees all that `base` sees: no fetch leaves such a cursor behind.
    pub fn between_pages(base: Snapshot, target: Snapshot, after: Place) -> Result<Self> {
        if !target.covers(&base) {
            return Err(Error::invalid(format!(
                "the target of a page must see all that its base sees, but base is xmax {} and target xmax {}",
                base.xmax(),
                target.xmax()
            )));
        }
        Ok(Self {
            base,
            page: Some((target, after)),
        })
    }

    /// The snapshot all of whose events have been handled.
    pub fn base(&self) -> &Snapshot {
        &self.base
    }

    /// Target and place of the last event handled, while pages of one target are outstanding.
    pub fn page(&self) -> Option<(&Snapshot, Place)> {
        self.page.as_ref().map(|(target, after)| (target, *after))
    }

    /// True when the next fetch must return this event, were it visible to `now`.
    ///
    /// This is the predicate that the fetch statement expresses as two index conditions: [`Cursor::bounds`].
    pub fn wants(&self, xid: Xid, id: i64, now: &Snapshot) -> bool {
        match &self.page {
            None => !self.base.sees(xid) && now.sees(xid),
            Some((target, after)) => !self.base.sees(xid) && target.sees(xid) && (xid, id) > *after,
        }
    }

    /// The same as [`Cursor::wants`], as the values that the fetch statement binds.
    pub fn bounds(&self) -> FetchBounds<'_> {
        let after = self.page.as_ref().map_or(Self::START, |(_, after)| *after);
        FetchBounds {
            from: after.max((self.base.xmax(), i64::MIN)),
            base_in_progress: self.base.in_progress(),
            target: self.page.as_ref().map(|(target, _)| target),
            after,
        }
    }

    /// The cursor after a fetch at snapshot `now` that returned events up to `last`.
    ///
    /// `full`: the page held as many events as were asked for, so more may be waiting behind it.
    #[must_use]
    pub fn after_fetch(self, now: Snapshot, last: Option<Place>, full: bool) -> Self {
        let target = match self.page {
            Some((target, _)) => target,
            None => now,
        };
        match last {
            Some(last) if full => Self {
                base: self.base,
                page: Some((target, last)),
            },
            _ => Self::new(target),
        }
    }
}

/// How many events the next page asks for: few while the reader keeps up, twice as many after each full page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize {
    min: u32,
    max: u32,
    next: u32,
}

impl PageSize {
    /// Starts at `min` events and grows up to `max`. A `min` of 0 counts as 1, a `max` below `min` as `min`.
    pub fn new(min: u32, max: u32) -> Self {
        let min = min.max(1);
        Self {
            min,
            max: max.max(min),
            next: min,
        }
    }

    /// Events that the next page asks for; at least 1.
    pub fn get(self) -> u32 {
        self.next
    }

    /// Learns that a page could not be had in time: the next ones ask for a quarter, if need be for a single event.
    pub fn too_large(&mut self) {
        self.next = (self.next / 4).max(1);
    }

    /// Learns from a page that returned `events` events: doubles when it came full, else starts over. Returns
    /// whether it was full, as [`Cursor::after_fetch`] wants to know it.
    pub fn learn(&mut self, events: usize) -> bool {
        let full = events as u64 >= u64::from(self.next);
        self.next = if full {
            self.next.saturating_mul(2).min(self.max)
        } else {
            self.min
        };
        full
    }
}

impl Default for PageSize {
    /// 500 to 5,000 events.
    fn default() -> Self {
        Self::new(500, 5_000)
    }
}
