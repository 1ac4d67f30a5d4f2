//! The warden: of all instances one is elected, keeps the log short and checks the watches for the fleet.
//!
//! ```text
//!   waiting --claim, LISTEN proved--> elected: a session of its own --every `claim`: renew
//!      ^                                 |                            --every `chores`: note how far the log is, prune
//!      |                                 |                            --every `check_interval`: check the watches
//!      +-- stop, LISTEN not proved: give the office back
//!      +-- session lost: the lease lapses, or this instance claims again
//!      +-- another one is in office
//! ```
//!
//! The claim goes over the feed's session, one short statement that writes nothing while another one is in office. Two
//! wardens for a moment do no harm: the chores lock what they change, and what is pruned only grows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::watches::Watches;
use crate::config::WardenConfig;
use crate::error::Result;
use crate::status::{Listening, Meters};
use crate::store::session::{CHORE_TIMEOUT, Connector, Purpose, Session};
use crate::store::warden;

/// Claims that fit into one lease.
const LEASE: u32 = 3;

/// Pause between two steps of pruning: the server has other work.
const STEP_PAUSE: Duration = Duration::from_millis(20);

/// Pause after a claim that was refused: a missing right or function does not appear by asking.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Candidate for the office, and its holder when elected.
pub(crate) struct Warden {
    /// Opens the session for the chores.
    pub(crate) connector: Connector,
    pub(crate) settings: WardenConfig,
    pub(crate) instance_id: Arc<str>,
    pub(crate) process: Uuid,
    pub(crate) listening: watch::Receiver<Listening>,
    /// The feed's session, for the claims.
    pub(crate) fetch: watch::Receiver<Option<Arc<Session>>>,
    pub(crate) meters: Arc<Meters>,
}

/// Why a term of office ended well.
enum Ended {
    /// This instance must not or will not go on.
    Resigned,
    /// Another one is in office.
    Replaced,
}

impl Warden {
    /// Runs until stopped; then gives the office back.
    pub(crate) async fn run(self, stop: CancellationToken) {
        // A process that lives for less than this never stands for election.
        let mut pause = self.claim_pause();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
            let elected = tokio::select! {
                () = stop.cancelled() => return,
                elected = self.stand() => elected,
            };
            pause = self.claim_pause();
            match elected {
                Ok(Some(fence)) => {
                    tracing::info!(fence, "elected warden");
                    let ended = self.term(&stop).await;
                    self.meters.warden.store(false, Ordering::Relaxed);
                    self.meters.watches_checked(None);
                    match ended {
                        Ok(Ended::Resigned) => tracing::info!(fence, "gave the office of the warden back"),
                        Ok(Ended::Replaced) => tracing::warn!(fence, "another instance is the warden now"),
                        Err(error) => {
                            tracing::warn!(fence, %error, "could not go on as warden; another may take over");
                            // Whoever cannot do the chores must not keep the office from those who can.
                            pause = self.settings.claim * (LEASE + 1);
                        }
                    }
                }
                Ok(None) => {}
                Err(error) if error.is_refused() || error.is_invalid() => {
                    tracing::warn!(%error, "may not become the warden; without one the log grows");
                    pause = pause.max(REFUSED_PAUSE);
                }
                // The feed says what is wrong with its session.
                Err(error) => tracing::debug!(%error, "no claim"),
            }
        }
    }

    /// With jitter, so that the claims of a fleet do not meet.
    fn claim_pause(&self) -> Duration {
        self.settings.claim.mul_f64(1.0 + 0.2 * fastrand::f64())
    }

    fn proved(&self) -> bool {
        *self.listening.borrow() == Listening::Proved
    }

    async fn claim(&self, session: &Session) -> Result<Option<i64>> {
        warden::claim(
            session,
            &self.instance_id,
            self.process,
            self.settings.claim * LEASE,
        )
        .await
    }

    /// Claims over the feed's session, if this instance is fit for the office.
    async fn stand(&self) -> Result<Option<i64>> {
        let session = self.fetch.borrow().clone();
        match session {
            Some(session) if self.proved() && !session.is_closed() => self.claim(&session).await,
            _ => Ok(None),
        }
    }

    /// One term of office, from the opening of its session to its end.
    async fn term(&self, stop: &CancellationToken) -> Result<Ended> {
        let session = tokio::select! {
            // Stopped: the feed leaves, which gives the office back.
            () = stop.cancelled() => return Ok(Ended::Resigned),
            session = self.connector.open(Purpose::Warden) => session?,
        };
        self.meters.warden.store(true, Ordering::Relaxed);
        let mut listening = self.listening.clone();
        let ended = tokio::select! {
            () = stop.cancelled() => Ended::Resigned,
            _ = listening.wait_for(|listening| *listening != Listening::Proved) => Ended::Resigned,
            ended = self.serve(&session) => ended?,
        };
        if let Ended::Resigned = ended {
            // On the same session, so after a renewal that is still under way.
            let releasing = warden::release(&session, &self.instance_id, self.process);
            if !matches!(timeout(Duration::from_secs(1), releasing).await, Ok(Ok(()))) {
                tracing::debug!("could not give the office back; it lapses by itself");
            }
        }
        Ok(ended)
    }

    /// Renews and does the chores until another one is in office.
    async fn serve(&self, session: &Session) -> Result<Ended> {
        let (mut renew_at, mut chores_at, mut check_at) = (Instant::now(), Instant::now(), Instant::now());
        let mut pruning = false;
        let mut watches = Watches::default();
        loop {
            let now = Instant::now();
            if now >= renew_at {
                if self.claim(session).await?.is_none() {
                    return Ok(Ended::Replaced);
                }
                renew_at = now + self.settings.claim;
            }
            if now >= chores_at {
                warden::note_horizon(session.client(), CHORE_TIMEOUT, self.settings.retention_max).await?;
                chores_at = now + self.settings.chores;
                pruning = true;
            }
            if now >= check_at {
                check_at = now + self.check(session, &mut watches).await?;
            }
            if pruning {
                let step = warden::prune(session.client(), CHORE_TIMEOUT, self.settings.retention).await?;
                pruning = step.more;
                self.meters.pruned.fetch_add(step.deleted, Ordering::Relaxed);
                sleep(STEP_PAUSE).await;
            } else {
                sleep_until(renew_at.min(chores_at).min(check_at).into()).await;
            }
        }
    }

    /// Checks the watches; the pause until the next time. What the server refuses ends no term of office: the log must
    /// be pruned all the same.
    async fn check(&self, session: &Session, watches: &mut Watches) -> Result<Duration> {
        match warden::check_watches(session.client(), CHORE_TIMEOUT).await {
            Ok(unwhole) => {
                self.meters.watches_checked(Some(unwhole.len() as u64));
                watches.found(unwhole);
                Ok(self.settings.check_interval)
            }
            Err(error) if error.is_timeout() || error.is_unreachable() => Err(error),
            Err(error) => {
                self.meters.watches_checked(None);
                watches.refused(&error);
                // A deadlock, say, is over by the next time.
                let lasts = error.is_refused() || error.is_invalid();
                let pause = if lasts { REFUSED_PAUSE } else { Duration::ZERO };
                Ok(self.settings.check_interval.max(pause))
            }
        }
    }
}
