//! When events are due, and who sends them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pgevict::lab::Cluster;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_postgres::{Client, Statement};

use crate::ledger::Ledger;

/// Sessions of one system's writers: enough that a slow commit delays no other event.
const WRITERS: usize = 16;

/// A steady rate for some time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    rate: u32,
    lasts: Duration,
}

impl Schedule {
    pub(crate) fn new(rate: u32, lasts: Duration) -> Self {
        Self { rate, lasts }
    }

    pub(crate) fn period(self) -> Duration {
        Duration::from_secs(1) / self.rate
    }

    pub(crate) fn events(self) -> usize {
        self.events_in(self.lasts)
    }

    pub(crate) fn events_in(self, time: Duration) -> usize {
        (time.as_secs_f64() * f64::from(self.rate)) as usize
    }
}

/// What is measured: how its events are written.
pub(crate) trait System: Send + Sync + 'static {
    /// The statement of an event's transaction; `$1` is the event's number as text.
    const WRITE: &'static str;

    /// Runs right before the transaction of an event begins.
    fn expect(&self, event: usize) -> Result<()>;
}

/// One session and its statement.
struct Writer {
    client: Client,
    write: Statement,
}

impl Writer {
    async fn open<S: System>(cluster: &Cluster) -> Result<Self> {
        let client = cluster.connect().await?;
        let write = client.prepare(S::WRITE).await?;
        Ok(Self { client, write })
    }

    async fn transact(&self, ledger: &Ledger, event: usize) -> Result<()> {
        self.client.batch_execute("begin").await?;
        self.client.execute(&self.write, &[&event.to_string()]).await?;
        ledger.sent(event);
        self.client.batch_execute("commit").await?;
        Ok(())
    }
}

/// Sends all events when they are due; returns how late one began at most.
pub(crate) async fn drive<S: System>(
    cluster: &Cluster,
    system: Arc<S>,
    ledger: Arc<Ledger>,
    schedule: Schedule,
    start: Instant,
) -> Result<Duration> {
    let (idle_here, mut idle) = mpsc::channel(WRITERS);
    for _ in 0..WRITERS {
        idle_here.send(Writer::open::<S>(cluster).await?).await?;
    }
    let mut late = Duration::ZERO;
    let mut tasks = JoinSet::new();
    for event in 0..schedule.events() {
        let due = start + Duration::from_secs_f64(event as f64 / f64::from(schedule.rate));
        sleep_until(due.into()).await;
        while let Some(done) = tasks.try_join_next() {
            done.context("a writer's task")??;
        }
        let writer = idle.recv().await.context("every writer has failed")?;
        late = late.max(due.elapsed());
        let (system, ledger, idle) = (system.clone(), ledger.clone(), idle_here.clone());
        tasks.spawn(async move {
            system.expect(event)?;
            writer.transact(&ledger, event).await?;
            idle.send(writer).await.context("the schedule has ended")
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a writer's task")??;
    }
    Ok(late)
}
