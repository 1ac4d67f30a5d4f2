//! The life of the LISTEN session: connect, listen, prove, watch, lose, connect again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::WakeConfig;
use crate::error::{Error, Result};
use crate::status::{Cause, Listening, Meters};
use crate::store::epoch;
use crate::store::notify::{self, PROBE_CHANNEL, WAKE_CHANNEL};
use crate::store::session::{Connector, Purpose, Session};
use crate::wake::drain::Drain;
use crate::wake::{Backoff, Signal};

/// SQLSTATE `lock_not_available`: the NOTIFY lock was not had in time.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Pause before looking again at an address that a pooler or a second server makes useless for LISTEN.
const MISCONFIGURED_PAUSE: Duration = Duration::from_secs(30);

/// Tries to catch a pooler at giving our session to another; its other clients may be quicker.
const SHARED_TRIES: usize = 3;

/// Owner of the LISTEN session.
pub(crate) struct Listener {
    /// Opens the LISTEN session.
    pub(crate) direct: Connector,
    /// Opens the session that the first probe is sent over, so that two addresses on two servers are found.
    pub(crate) other: Connector,
    /// The feed's session, for later probes.
    pub(crate) fetch: watch::Receiver<Option<Arc<Session>>>,
    pub(crate) settings: WakeConfig,
    pub(crate) backoff: Backoff,
    pub(crate) signal: Arc<Signal>,
    pub(crate) listening: watch::Sender<Listening>,
    pub(crate) meters: Arc<Meters>,
}

impl Drop for Listener {
    /// Whatever ended the task, nobody is to count on wakes from here on.
    fn drop(&mut self) {
        self.listening.send_replace(Listening::Lost(Cause::Closed));
    }
}

/// How a probe went.
enum Probe {
    Sent,
    /// The NOTIFY lock was not had: neither proof nor loss.
    Congested,
}

/// Why the session is lost, with the error that says more.
struct Lost(Cause, Option<Error>);

impl Listener {
    /// Runs until stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let lost = tokio::select! {
                () = stop.cancelled() => return,
                lost = self.session() => lost,
            };
            let Lost(cause, error) = lost;
            self.listening.send_replace(Listening::Lost(cause));
            self.meters.lost(cause);
            let pause = match cause {
                Cause::Pooler | Cause::TwoServers => {
                    MISCONFIGURED_PAUSE.mul_f64(0.75 + 0.5 * fastrand::f64())
                }
                _ => self.backoff.pause(fastrand::f64()),
            };
            tracing::warn!(
                cause = cause.as_str(),
                error = error.as_ref().map(tracing::field::display),
                address = self.direct.shown(),
                pause_ms = pause.as_millis() as u64,
                "{}",
                advice(cause),
            );
            let mut fetch = self.fetch.clone();
            fetch.mark_unchanged();
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
                // The server is back: the feed's session got through.
                () = connected(&mut fetch), if !is_misconfigured(cause) => {}
            }
        }
    }

    /// One session, from the connect to its loss.
    async fn session(&mut self) -> Lost {
        let (session, drain) = match self.connect().await {
            Ok(connected) => connected,
            Err(error) => return Lost(Cause::of(&error, Cause::Unreachable), Some(error)),
        };
        tokio::select! {
            () = drain.ended() => Lost(Cause::Closed, None),
            lost = self.prove_and_watch(&session, &drain) => lost,
        }
    }

    async fn connect(&self) -> Result<(Session, Drain)> {
        let (client, driver) = self.direct.connect(Purpose::Listen).await?;
        let drain = Drain::start(driver, self.signal.clone());
        let mut session = Session::new(client, self.direct.statement_timeout());
        self.direct.prepare(&mut session, Purpose::Listen).await?;
        Ok((session, drain))
    }

    async fn prove_and_watch(&mut self, session: &Session, drain: &Drain) -> Lost {
        match self.prove(session, drain).await {
            Ok(()) => {}
            Err(lost) => return lost,
        }
        self.backoff.reset();
        self.listening.send_replace(Listening::Proved);
        self.signal.ring();
        tracing::info!(address = self.direct.shown(), "LISTEN proved");
        self.watch(drain).await
    }

    /// LISTEN first, then let the feed fetch, then prove that a notification arrives.
    async fn prove(&self, session: &Session, drain: &Drain) -> Result<(), Lost> {
        let closed = |error| Lost(Cause::of(&error, Cause::Closed), Some(error));
        if session.is_lent() && self.is_shared(session).await.map_err(closed)? {
            return Err(Lost(Cause::Pooler, None));
        }
        let random = format!("pgevict_probe_{}", Uuid::new_v4().simple());
        notify::listen(session, &random).await.map_err(closed)?;
        if !notify::is_listening(session, &random).await.map_err(closed)? {
            // Best effort: leave nothing behind on whichever server session answers.
            drop(notify::unlisten(session, "*").await);
            return Err(Lost(Cause::Pooler, None));
        }
        notify::listen(session, WAKE_CHANNEL).await.map_err(closed)?;
        notify::listen(session, PROBE_CHANNEL).await.map_err(closed)?;
        self.signal.ring();
        let over = self
            .other
            .open(Purpose::Probe)
            .await
            .map_err(|error| Lost(Cause::of(&error, Cause::Unreachable), Some(error)))?;
        while let Probe::Congested = self.send(&over, &random).await.map_err(closed)? {
            // Nobody waits for a proof that others hold up: events come by polling meanwhile.
            self.listening.send_if_modified(|listening| {
                let first = *listening == Listening::Connecting;
                if first {
                    *listening = Listening::Lost(Cause::Congested);
                }
                first
            });
            sleep(self.settings.probe_timeout / 4).await;
        }
        match timeout(self.settings.probe_timeout, drain.hears(&random)).await {
            Ok(true) => notify::unlisten(session, &random).await.map_err(closed),
            Ok(false) => Err(Lost(Cause::Closed, None)),
            Err(_) => Err(self.unheard(session, &over).await),
        }
    }

    /// A pooler gives the server's session that just answered us to the next who asks. Found out before LISTEN, which
    /// would stay behind in it.
    async fn is_shared(&self, session: &Session) -> Result<bool> {
        for _ in 0..SHARED_TRIES {
            let ours = notify::process(session).await?;
            let other = self.direct.open(Purpose::Probe).await?;
            if notify::process(&other).await? == ours {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Why the first probe was not heard: the two addresses lead to different databases; a pooler lends the session; or
    /// else the link is dead.
    async fn unheard(&self, session: &Session, over: &Session) -> Lost {
        let places = tokio::join!(epoch::database_of(session), epoch::database_of(over));
        match places {
            (Ok(here), Ok(there)) if here != there => Lost(Cause::TwoServers, None),
            (Ok(_), _) if session.is_lent() => {
                // Best effort, as above.
                drop(notify::unlisten(session, "*").await);
                Lost(Cause::Pooler, None)
            }
            _ => Lost(Cause::HalfOpen, None),
        }
    }

    /// Watches a proved session: any notification is proof; who hears none probes.
    async fn watch(&self, drain: &Drain) -> Lost {
        let mut proved_at = Instant::now();
        loop {
            proved_at = drain.heard_at().map_or(proved_at, |heard| heard.max(proved_at));
            // Jitter: in a quiet fleet one probe proves everybody.
            let due = proved_at + self.settings.probe_interval.mul_f64(1.0 + 0.2 * fastrand::f64());
            tokio::time::sleep_until(due.into()).await;
            if drain.heard_at().is_some_and(|heard| heard > proved_at) {
                continue;
            }
            let sent = Instant::now();
            match self.probe().await {
                Ok(Probe::Sent) => {}
                Ok(Probe::Congested) => {
                    proved_at = Instant::now() - self.settings.probe_interval / 2;
                    continue;
                }
                Err(error) => return Lost(Cause::of(&error, Cause::Unreachable), Some(error)),
            }
            match timeout(self.settings.probe_timeout, drain.hears_since(sent)).await {
                Ok(true) => {}
                Ok(false) => return Lost(Cause::Closed, None),
                Err(_) => return Lost(Cause::HalfOpen, None),
            }
        }
    }

    /// Sends a probe on the shared channel, over the feed's session or, without one, over a new one.
    async fn probe(&self) -> Result<Probe> {
        let session = self.fetch.borrow().clone();
        match session {
            Some(session) if !session.is_closed() => self.send(&session, PROBE_CHANNEL).await,
            _ => {
                self.send(&self.other.open(Purpose::Probe).await?, PROBE_CHANNEL)
                    .await
            }
        }
    }

    async fn send(&self, session: &Session, channel: &str) -> Result<Probe> {
        self.meters.probes.fetch_add(1, Ordering::Relaxed);
        let sent = notify::notify(session, channel).await;
        let congested = matches!(&sent, Err(error) if error.sqlstate() == Some(LOCK_NOT_AVAILABLE));
        if congested != self.meters.congested.swap(congested, Ordering::Relaxed) {
            tracing::warn!(congested, "NOTIFY lock of the server");
            self.signal.ring();
        }
        match sent {
            Ok(()) => Ok(Probe::Sent),
            Err(_) if congested => Ok(Probe::Congested),
            Err(error) => Err(error),
        }
    }
}

/// Trying again soon does not help: an address has to be changed.
fn is_misconfigured(cause: Cause) -> bool {
    matches!(cause, Cause::Pooler | Cause::TwoServers)
}

/// Resolves when a session is opened from now on.
async fn connected(fetch: &mut watch::Receiver<Option<Arc<Session>>>) {
    while fetch.changed().await.is_ok() {
        if fetch.borrow_and_update().is_some() {
            return;
        }
    }
    // The feed has ended; the stop signal follows.
    std::future::pending().await
}

/// The log line of a loss: what it means and what to do.
fn advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Pooler => {
            "LISTEN does not reach the server's session (a pooler?): set listen_url to a direct address; polling"
        }
        Cause::TwoServers => {
            "a notification sent over url is not heard on listen_url: both must lead to the same database; polling"
        }
        Cause::HalfOpen => "LISTEN session is half-open: a probe was not heard; polling and reconnecting",
        Cause::Standby => "LISTEN needs the primary; polling and reconnecting",
        _ => "LISTEN session lost; polling and reconnecting",
    }
}
