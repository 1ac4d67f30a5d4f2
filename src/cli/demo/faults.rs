//! What goes wrong in the demo, when, and how long it takes until all instances are ready again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use pgevict::lab::{Relay, StopMode};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};

use super::report::say;
use super::shop::Shop;
use super::stage::{INSTANCES, Stage, connect, name};

/// How long one instance is cut off.
const CUT: Duration = Duration::from_secs(3);

/// From the injection of a fault until all instances were ready again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Instant,
    pub(super) until: Instant,
}

impl Window {
    /// True when any moment of the span lies in the window.
    pub(super) fn touches(&self, from: Instant, until: Instant) -> bool {
        from <= self.until && until >= self.from
    }
}

/// The faults of one run.
pub(super) struct Faults {
    shop: Arc<Shop>,
    plan: Vec<(Instant, Fault)>,
    windows: Mutex<Vec<Window>>,
    over: watch::Sender<bool>,
}

enum Fault {
    /// The backend of one LISTEN session is terminated.
    Terminate(String),
    /// One instance is cut off.
    CutOff(Relay),
    /// The server is restarted. Holds a way to do it.
    Restart(Arc<pgevict::lab::Cluster>),
}

impl Faults {
    /// At a third, a half and two thirds of the time.
    pub(super) fn plan(stage: &Stage, shop: &Arc<Shop>, start: Instant, lasts: Duration) -> Arc<Self> {
        let mut plan = vec![
            (start + lasts / 3, Fault::Terminate(stage.url().to_owned())),
            (start + lasts / 2, Fault::CutOff(stage.relay().clone())),
        ];
        if let Some(cluster) = stage.cluster() {
            plan.push((start + lasts * 2 / 3, Fault::Restart(cluster.clone())));
        }
        Arc::new(Self {
            shop: shop.clone(),
            plan,
            windows: Mutex::default(),
            over: watch::Sender::new(false),
        })
    }

    /// Injects them; they may overlap.
    pub(super) async fn run(self: Arc<Self>) {
        join_all(self.plan.iter().map(|(at, fault)| self.inject(*at, fault))).await;
        self.over.send_replace(true);
    }

    async fn inject(&self, at: Instant, fault: &Fault) {
        sleep_until(at.into()).await;
        let from = Instant::now();
        let what = match fault {
            Fault::Terminate(_) => format!("FAULT: terminating the LISTEN backend of {}", name(0)),
            Fault::CutOff(_) => format!("FAULT: cutting {} off for {CUT:?}", name(INSTANCES - 1)),
            Fault::Restart(_) => "FAULT: restarting the cluster".to_owned(),
        };
        say(&what);
        let done = match fault {
            Fault::Terminate(url) => terminate(url).await,
            Fault::CutOff(relay) => {
                relay.cut();
                sleep(CUT).await;
                relay.pass();
                Ok(())
            }
            Fault::Restart(cluster) => cluster.restart(StopMode::Fast).await.map_err(Into::into),
        };
        if let Err(error) = done {
            say(&format!("the fault could not be injected: {error:#}"));
            return;
        }
        // The instances notice within one round trip; a status of before must not pass as recovery.
        sleep(Duration::from_millis(20)).await;
        let recovered = timeout(super::RECOVERY, self.shop.ready()).await.is_ok();
        let until = Instant::now();
        self.windows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Window { from, until });
        let took = (until - from).as_millis();
        match recovered {
            true => say(&format!("RECOVERED: all ready {took} ms after the fault")),
            false => say(&format!("NOT RECOVERED within {took} ms")),
        }
    }

    /// Resolves when every fault has been injected and recovered from.
    pub(super) async fn over(&self) {
        drop(self.over.subscribe().wait_for(|over| *over).await);
    }

    /// The windows of the faults that were injected.
    pub(super) fn windows(&self) -> Vec<Window> {
        self.windows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn terminate(url: &str) -> anyhow::Result<()> {
    let client = connect(url).await?;
    let terminate =
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1";
    let application = format!("pgevict/listen/{}", name(0));
    let row = client
        .query_typed_one(terminate, &[(&application, tokio_postgres::types::Type::TEXT)])
        .await?;
    anyhow::ensure!(row.get::<_, i64>(0) > 0, "no LISTEN backend named {application}");
    Ok(())
}
