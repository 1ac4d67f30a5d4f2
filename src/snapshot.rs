//! Snapshots and cursors: the algebra that decides which events are new. Pure code.
//!
//! Ids come from a sequence at insert, rows appear at commit, so `id > last` skips late commits. A cursor is
//! therefore a whole `pg_snapshot`: *fetch what is visible now and was not visible in the cursor*. The rule is
//! PgQ's (`pgq.batch_event_sql`); the paging on top of it, in `cursor.rs`, is ours.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

mod cursor;
mod life;
mod wire;

pub use cursor::{Cursor, FetchBounds, PageSize, Place};
pub use life::{Identity, Life};

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

    /// What of a snapshot that was taken on a standby can be relied on: it lists nobody as in progress, so only the ids
    /// below `xmin` had surely finished.
    pub fn finished(&self) -> Self {
        Self {
            xmin: self.xmin,
            xmax: self.xmin,
            in_progress: Box::default(),
        }
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
            let head: String = text.chars().take(60).collect();
            Error::invalid(format!(
                "{head:?} is not a snapshot of the form xmin:xmax:xip,xip"
            ))
        };
        let number = |part: &str| {
            // `u64::from_str` alone would take a leading plus.
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|_| digits).map(Xid).ok_or_else(bad)
        };
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

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
