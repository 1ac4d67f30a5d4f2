//! Where the feed stands: the published cursor, when it was proved, and what has been voided since.
//!
//! Written by the feed only; read by every hit and every fill token. A flush or reset moves the generation,
//! which hides every entry and voids every fill token issued before, at once and without touching the entries.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use tokio_postgres::types::PgLsn;

use super::clock::Clock;
pub use super::clock::Moment;
use super::token::FillToken;
use super::trail::Trail;
use crate::snapshot::{Life, Snapshot};

/// The published position of one feed.
///
/// The generation moves under the lock of the cursor, so a fill token never pairs the cursor of one generation
/// with the number of another.
#[derive(Debug, Default)]
pub struct Position {
    published: RwLock<Option<Published>>,
    generation: AtomicU64,
    as_of_boot: AtomicI64,
    as_of_wall: AtomicI64,
    clock: Clock,
}

#[derive(Debug)]
struct Published {
    cursor: Arc<Snapshot>,
    /// It and those before it; `None` when the feed does not say where in the WAL they stand.
    trail: Option<Arc<Trail>>,
}

impl Position {
    /// A position that reads the time from this clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    /// Now, by this position's clock.
    #[inline]
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The published cursor; `None` until the first complete fetch and between a reset and the next one.
    pub fn cursor(&self) -> Option<Arc<Snapshot>> {
        let published = self.published.read().unwrap_or_else(PoisonError::into_inner);
        published.as_ref().map(|published| published.cursor.clone())
    }

    /// Moves with every flush and reset.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The token for a read on the primary that starts after this call; `None` while there is no cursor.
    pub fn token(&self) -> Option<FillToken> {
        let published = self.published.read().unwrap_or_else(PoisonError::into_inner);
        let Published { cursor, trail } = published.as_ref()?;
        Some(FillToken::new(cursor.clone(), self.generation(), trail.clone()))
    }

    /// When this instance last proved that it had seen everything; `None` before the first proof.
    #[inline]
    pub fn as_of(&self) -> Option<Moment> {
        let boot = self.as_of_boot.load(Ordering::Acquire);
        (boot != 0).then(|| Moment {
            boot,
            wall: self.as_of_wall.load(Ordering::Acquire),
        })
    }

    /// True when the last proof is at most `max_staleness` old.
    pub fn is_fresh(&self, max_staleness: Duration) -> bool {
        self.is_fresh_at(self.now(), max_staleness)
    }

    /// True when the last proof is at most `max_staleness` old at `now`, and no clock jumped since.
    #[inline]
    pub fn is_fresh_at(&self, now: Moment, max_staleness: Duration) -> bool {
        self.as_of()
            .and_then(|as_of| as_of.age_at(now))
            .is_some_and(|age| age <= max_staleness)
    }

    /// Publishes the cursor of a complete fetch that was sent at `as_of`; all that it sees has been applied.
    pub fn publish(&self, cursor: Arc<Snapshot>, as_of: Moment) {
        self.put(Published { cursor, trail: None }, as_of);
    }

    /// As [`publish`](Self::publish), with what marks are judged by: the life of the server, and a place in its WAL
    /// that was read after the cursor's snapshot was taken.
    pub fn publish_at(&self, cursor: Arc<Snapshot>, as_of: Moment, life: Life, lsn: PgLsn) {
        let before = {
            let published = self.published.read().unwrap_or_else(PoisonError::into_inner);
            published.as_ref().and_then(|published| published.trail.clone())
        };
        let before = before.filter(|trail| *trail.life() == life);
        let before = before.unwrap_or_else(|| Arc::new(Trail::new(life)));
        let trail = Some(Arc::new(before.with(&cursor, lsn, as_of.boot)));
        self.put(Published { cursor, trail }, as_of);
    }

    fn put(&self, published: Published, as_of: Moment) {
        *self.write() = Some(published);
        self.as_of_wall.store(as_of.wall, Ordering::Release);
        self.as_of_boot.store(as_of.boot, Ordering::Release);
    }

    /// Voids every fill token and hides every entry: called before a flush is applied.
    pub fn void(&self) {
        let _published = self.write();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Voids, and withdraws the cursor and the proof until the next complete fetch: called when a reset is due; the
    /// sinks are told of it together with that fetch.
    pub fn withdraw(&self) {
        let mut published = self.write();
        *published = None;
        self.as_of_boot.store(0, Ordering::Release);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<Published>> {
        self.published.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_ages_and_a_jump_of_the_wall_clock_ends_it() {
        let (clock, hands) = Clock::manual();
        let position = Position::with_clock(clock);
        let limit = Duration::from_secs(5);
        assert!(!position.is_fresh(limit), "no proof yet");
        position.publish(Arc::new("5:5:".parse().unwrap()), position.now());
        hands.advance(limit);
        assert!(position.is_fresh(limit));
        hands.advance(Duration::from_nanos(1));
        assert!(!position.is_fresh(limit));

        position.publish(Arc::new("5:5:".parse().unwrap()), position.now());
        hands.jump_wall(1_000);
        assert!(position.is_fresh(limit), "a step of 1 s is agreement");
        hands.jump_wall(1);
        assert!(!position.is_fresh(limit), "forward");
        hands.jump_wall(-2_002);
        assert!(!position.is_fresh(limit), "backward");
        position.publish(Arc::new("5:5:".parse().unwrap()), position.now());
        assert!(position.is_fresh(limit), "the next fetch proves again");
    }

    #[test]
    fn a_reset_leaves_nothing_to_issue_tokens_from() {
        let position = Position::default();
        position.publish(Arc::new("5:5:".parse().unwrap()), position.now());
        let before = position.token().unwrap();
        position.void();
        let after = position.token().unwrap();
        assert_ne!(before.generation(), after.generation());
        position.withdraw();
        assert!(position.token().is_none() && position.as_of().is_none());
    }
}
