//! `pgevict demo`: three instances, writers and readers on a real server, with faults; every hit is checked
//! against what the database had committed.

mod faults;
mod report;
mod shop;
mod stage;
mod truth;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::Place;
use faults::Faults;
use report::Report;
use shop::Shop;
use stage::Stage;
use truth::Truth;

/// Longest wait for the last events after the writers have stopped.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// Longest wait for the statements that make the table, when interrupted.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// Longest wait for all instances to be ready again after a fault.
const RECOVERY: Duration = Duration::from_secs(60);

/// See it work: three instances with caches, writers, readers that check every hit, and faults.
///
/// Without --url it makes a throwaway cluster from the PostgreSQL binaries on this machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pgevict demo
  pgevict demo --for 15s --json
  pgevict demo --url postgresql://me@localhost/test --rate 100")]
pub(super) struct Demo {
    /// How long it runs once everything is ready.
    #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = crate::cli::time)]
    lasts: Duration,
    /// Writes a second, in all.
    #[arg(long, value_name = "WRITES", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Prints the summary as one JSON object, as the last line.
    #[arg(long)]
    json: bool,
}

impl Demo {
    /// Runs it; false when a stale read or a lost event was seen.
    pub(super) async fn run(self, place: &Place) -> Result<bool> {
        anyhow::ensure!(
            self.lasts >= Duration::from_secs(3),
            "--for: the faults need at least 3s, such as --for 15s"
        );
        let stage = Stage::find(place).await?;
        // From the first write on an interrupt ends the demo, and what it made is taken away.
        let ready = match unless_interrupted(stage.set(), LAST_WRITES).await {
            Ok(()) => unless_interrupted(Play::ready(&stage), Duration::ZERO).await,
            Err(error) => Err(error),
        };
        let played = match ready {
            Ok(play) => self.play(&stage, play).await,
            Err(error) => Err(error),
        };
        let struck = stage.strike().await;
        let report = played?;
        struck?;
        report.print(self.json);
        Ok(report.is_clean())
    }

    async fn play(&self, stage: &Stage, play: Play) -> Result<Report> {
        let Play {
            truth,
            stop,
            tasks,
            shop,
        } = play;
        let start = Instant::now();
        let end = start + self.lasts;
        report::say(&format!(
            "ready: 3 instances, {} writes/s for {}, max_staleness {}",
            self.rate,
            humantime::format_duration(self.lasts),
            humantime::format_duration(stage::MAX_STALENESS),
        ));
        shop.spawn_writers(self.rate, &tasks, &stop);
        shop.spawn_readers(&tasks, &stop);
        let faults = Faults::plan(stage, &shop, start, self.lasts);
        tasks.spawn(faults.clone().run());
        tasks.spawn(report::every_second(shop.clone(), stop.clone()));
        tokio::select! {
            () = sleep_until(end.into()) => {}
            signal = tokio::signal::ctrl_c() => {
                signal.context("waiting for ctrl-c")?;
                report::say("interrupted: ending early");
            }
        }
        shop.stop_writers().await;
        let ended = async {
            // A fault close to the end is shown to its recovery.
            drop(timeout(RECOVERY, faults.over()).await);
            let deadline = Instant::now() + LAST_EVENTS;
            while truth.missing(Instant::now()) > 0 && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = ended => {}
            signal = tokio::signal::ctrl_c() => signal.context("waiting for ctrl-c")?,
        }
        stop.cancel();
        tasks.close();
        drop(timeout(LAST_EVENTS, tasks.wait()).await);
        let report = Report::new(&shop, &faults);
        shop.close().await;
        Ok(report)
    }
}

/// Does `work` unless ctrl-c is typed; then it has `grace` to end, so that no statement of it is still under way.
async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>, grace: Duration) -> Result<T> {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        done = &mut work => done,
        signal = tokio::signal::ctrl_c() => {
            signal.context("waiting for ctrl-c")?;
            drop(timeout(grace, work).await);
            anyhow::bail!("interrupted")
        }
    }
}

/// What runs while the demo plays.
struct Play {
    truth: Arc<Truth>,
    stop: CancellationToken,
    tasks: TaskTracker,
    shop: Arc<Shop>,
}

impl Play {
    /// Starts the instances.
    async fn ready(stage: &Stage) -> Result<Self> {
        let (truth, stop, tasks) = (Arc::default(), CancellationToken::new(), TaskTracker::new());
        let shop = Shop::open(stage, Arc::clone(&truth), &tasks, &stop).await?;
        Ok(Self {
            truth,
            stop,
            tasks,
            shop: Arc::new(shop),
        })
    }
}
