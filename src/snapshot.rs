//! Snapshots and cursors: the algebra that decides which events are new. Pure code.
//!
//! Ids come from a sequence at insert, rows appear at commit, so `id > last` skips late commits. A cursor is
//! therefore a whole `pg_snapshot`: *fetch what is visible now and was not visible in the cursor*. The rule is
//! PgQ's (`pgq.batch_event_sql`); the paging on top of it is ours:
//!
//! ```text
//!   base --------------------------> target (the snapshot of the first, full page)
//!     |  page 1 | page 2 | page 3 |     |
//!     +--after--+--after-+--------+---> base := target
//! ```
//!
//! A page that is full pins a *target*. Further pages read "not seen by base, seen by target, above after, in
//! (xid, id) order"; the last page makes the target the new base.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A 64-bit transaction id (`xid8`), top-level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Xid(pub u64);

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A `pg_snapshot`: which transactions had finished when it was taken.
///
/// Shape: all ids below `xmin` are finished; ids from `xmax` on are not; between them those in `in_progress`
/// (sorted, unique, each in `xmin..xmax`) are not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Snapshot {
    xmin: Xid,
    xmax: Xid,
    in_progress: Box<[Xid]>,
}

impl Snapshot {
    /// Builds one from its parts.
    ///
    /// # Errors
    /// Invalid unless `1 <= xmin <= xmax` and `in_progress` is strictly ascending within `xmin..xmax`.
    pub fn new(xmin: Xid, xmax: Xid, in_progress: impl Into<Box<[Xid]>>) -> Result<Self> {
        let in_progress = in_progress.into();
        let ascending = in_progress.windows(2).all(|pair| pair[0] < pair[1]);
        let within = in_progress.first().is_none_or(|first| *first >= xmin)
            && in_progress.last().is_none_or(|last| *last < xmax);
        if xmin.0 == 0 || xmin > xmax || !ascending || !within {
            return Err(Error::invalid(format!(
                "snapshot {xmin}:{xmax} with {} ids in progress is not well formed",
                in_progress.len()
            )));
        }
        Ok(Self {
            xmin,
            xmax,
            in_progress,
        })
    }

    /// Lowest id that was still in progress; all below are finished.
    pub fn xmin(&self) -> Xid {
        self.xmin
    }

    /// First id that was not yet given out or finished; all from here on are unseen.
    pub fn xmax(&self) -> Xid {
        self.xmax
    }

    /// Ids between `xmin` and `xmax` that were in progress, ascending.
    pub fn in_progress(&self) -> &[Xid] {
        &self.in_progress
    }

    /// True when the transaction had finished (`pg_visible_in_snapshot`).
    pub fn sees(&self, xid: Xid) -> bool {
        xid < self.xmin || (xid < self.xmax && self.in_progress.binary_search(&xid).is_err())
    }

    /// True when this snapshot sees every id that `other` sees.
    pub fn covers(&self, other: &Snapshot) -> bool {
        if self.in_progress.iter().any(|xid| other.sees(*xid)) {
            return false;
        }
        if other.xmax <= self.xmax {
            return true;
        }
        // Above our xmax `other` must see nothing: every id there is in its in-progress list.
        let from = self.xmax.max(other.xmin);
        if self.xmax < other.xmin {
            return false;
        }
        let open = other.in_progress.len() - other.in_progress.partition_point(|xid| *xid < from);
        open as u64 == other.xmax.0 - from.0
    }
}

impl fmt::Display for Snapshot {
    /// PostgreSQL's text form `xmin:xmax:xip,xip`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (n, xid) in self.in_progress.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            write!(f, "{xid}")?;
        }
        Ok(())
    }
}

impl FromStr for Snapshot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!(
                "{text:?} is not a snapshot of the form xmin:xmax:xip,xip"
            ))
        };
        let number = |part: &str| part.parse::<u64>().map(Xid).map_err(|_| bad());
        let mut parts = text.splitn(3, ':');
        let (Some(xmin), Some(xmax), Some(list)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(bad());
        };
        let in_progress = match list {
            "" => Vec::new(),
            list => list.split(',').map(number).collect::<Result<Vec<_>>>()?,
        };
        Self::new(number(xmin)?, number(xmax)?, in_progress)
    }
}

/// Place of an event in the order of one fetch: (xid, id).
pub type Place = (Xid, i64);

/// How far a reader has come: all that the base sees has been handled, and of the target's part all up to `after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    base: Snapshot,
    page: Option<(Snapshot, Place)>,
}

impl Cursor {
    /// All that `base` sees has been handled.
    pub fn new(base: Snapshot) -> Self {
        Self { base, page: None }
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
    /// This is the predicate that the fetch statement expresses as two index conditions.
    pub fn wants(&self, xid: Xid, id: i64, now: &Snapshot) -> bool {
        match &self.page {
            None => !self.base.sees(xid) && now.sees(xid),
            Some((target, after)) => !self.base.sees(xid) && target.sees(xid) && (xid, id) > *after,
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

#[cfg(test)]
mod tests;
