//! Cursors of the recent past, each with the place in the WAL that holds all that it sees.
//!
//! A standby that has replayed that place shows, from then on, all that the cursor sees: the commit record of a
//! transaction is in the WAL before any snapshot sees the transaction, and the place was read after the snapshot.
//! Standbys lag, so the newest cursor alone would be of little use.

use std::sync::Arc;

use tokio_postgres::types::PgLsn;

use crate::snapshot::{Life, Snapshot};

/// Cursors that one life of a server published, oldest first. Immutable: tokens hold on to it.
#[derive(Debug)]
pub(super) struct Trail {
    life: Life,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
struct Step {
    cursor: Arc<Snapshot>,
    lsn: PgLsn,
    /// On the clock that counts suspension; nanoseconds.
    at: i64,
}

impl Trail {
    /// Steps lie at most this part of their age apart, so their number grows with the logarithm of the age only.
    const FINENESS: i64 = 4;

    pub(super) fn new(life: Life) -> Self {
        Self {
            life,
            steps: Vec::new(),
        }
    }

    /// The trail with one more cursor, published at `now`.
    pub(super) fn with(&self, cursor: &Arc<Snapshot>, lsn: PgLsn, now: i64) -> Self {
        // The place that was read with a cursor first is the lower one, and as good.
        let same = self.steps.last().is_some_and(|last| last.cursor == *cursor);
        let step = (!same).then(|| Step {
            cursor: cursor.clone(),
            lsn,
            at: now,
        });
        let mut steps: Vec<Step> = Vec::with_capacity(self.steps.len() + 1);
        for (n, step) in self.steps.iter().enumerate() {
            let (before, after) = (steps.last(), self.steps.get(n + 1));
            let spare = before.zip(after).is_some_and(|(before, after)| {
                (after.at - before.at).saturating_mul(Self::FINENESS) < now - step.at
            });
            if !spare {
                steps.push(step.clone());
            }
        }
        steps.extend(step);
        Self {
            life: self.life,
            steps,
        }
    }

    pub(super) fn life(&self) -> &Life {
        &self.life
    }

    /// The newest cursor of which a server that has replayed up to `lsn` shows everything.
    pub(super) fn reached_by(&self, lsn: PgLsn) -> Option<&Arc<Snapshot>> {
        let reached = self.steps.iter().rev().find(|step| step.lsn <= lsn);
        reached.map(|step| &step.cursor)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::snapshot::{Identity, Xid};

    fn cursor(n: u64) -> Arc<Snapshot> {
        Arc::new(Snapshot::new(Xid(n), Xid(n), []).unwrap())
    }

    fn trail() -> Trail {
        let identity = Identity {
            system_identifier: 1,
            database: 2,
            event_table: 3,
        };
        Trail::new(Life {
            epoch: Uuid::nil(),
            identity,
        })
    }

    #[test]
    fn the_newest_cursor_at_or_below_the_place_counts() {
        let trail = trail()
            .with(&cursor(5), 50.into(), 0)
            .with(&cursor(7), 70.into(), 1);
        assert_eq!(trail.reached_by(49.into()), None);
        assert_eq!(trail.reached_by(50.into()), Some(&cursor(5)));
        assert_eq!(trail.reached_by(69.into()), Some(&cursor(5)));
        assert_eq!(trail.reached_by(70.into()), Some(&cursor(7)));
        let again = trail.with(&cursor(7), 90.into(), 2);
        assert_eq!(
            again.reached_by(70.into()),
            Some(&cursor(7)),
            "the first place is as good"
        );
    }

    #[test]
    fn it_stays_short_and_is_fine_where_it_is_young() {
        const MILLI: i64 = 1_000_000;
        let mut trail = trail();
        let end = 60_000_u64;
        for n in 1..=end {
            trail = trail.with(&cursor(n), n.into(), n as i64 * MILLI);
            assert!(trail.steps.len() < 90, "{} steps", trail.steps.len());
        }
        for lag in [0, 1, 10, 100, 1_000, 10_000] {
            let found = trail.reached_by((end - lag).into()).unwrap().xmax().0;
            assert!(
                found <= end - lag && end - found <= lag + lag / 2 + 1,
                "{lag}: {found}"
            );
        }
    }
}
