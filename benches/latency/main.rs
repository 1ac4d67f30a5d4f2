//! From the sending of COMMIT to the entry leaving the near cache, beside a bare LISTEN in the same run.
//!
//! `cargo bench --bench latency -- [--seconds 20] [--rate 200] [--no-flush]`
//!
//! Two systems share one throwaway server and one process. *pgevict*: a transaction emits a key; the clock stops
//! when the near cache of a running instance lets go of the entry under it. *floor*: a transaction inserts a row
//! and notifies; the clock stops when a connection that does nothing but LISTEN has read the notification.
//! Both clocks start when COMMIT is sent.
//!
//! The schedule is open: an event is due at its time whatever became of those before it, over as many sessions as
//! are needed. The events of the two systems alternate, so that what disturbs one disturbs the other: read the
//! ratio and the difference, not the milliseconds. The difference is what pgevict adds, one fetch.
//!
//! A commit waits for the disk, as PostgreSQL does unless told otherwise; both systems pay for that alike. With
//! `--no-flush` it does not (`fsync` and `synchronous_commit` off, files in memory): the ratio of what remains, a
//! few context switches against a few more, is the least flattering there is.
//!
//! Prints a table and writes `target/bench/latency.json`, one object a system.

mod arguments;
mod floor;
mod ledger;
mod report;
mod schedule;
mod subject;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pgevict::config::Config;
use pgevict::lab::{Cluster, ClusterOptions};
use pgevict::store::Admin;
use tokio::runtime;

use crate::arguments::{Arguments, Flush};
use crate::floor::Floor;
use crate::ledger::Ledger;
use crate::report::{Latencies, report};
use crate::schedule::{Schedule, drive};
use crate::subject::Subject;

/// Events of this long at the beginning are sent but not measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// Longest wait for the last events.
const LAST_EVENTS: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1))? else {
        return Ok(());
    };
    // The application and those who write are different processes in real life: here, different runtimes.
    let application = runtime::Builder::new_multi_thread().enable_all().build()?;
    let writers = runtime::Builder::new_current_thread().enable_all().build()?;

    let schedule = Schedule::new(arguments.rate, WARM_UP + arguments.lasts);
    let ledgers = [(); 2].map(|()| Arc::new(Ledger::new(schedule.events())));
    let [pgevict, floor] = &ledgers;
    let (cluster, subject, listener) = application.block_on(async {
        let cluster = start(&arguments).await?;
        let subject = Subject::start(&cluster, pgevict.clone()).await?;
        let listener = Floor::start(&cluster, floor.clone()).await?;
        anyhow::Ok((cluster, Arc::new(subject), Arc::new(listener)))
    })?;
    let late = writers.block_on(async {
        let start = Instant::now() + Duration::from_millis(50);
        let half = start + schedule.period() / 2;
        tokio::try_join!(
            drive(&cluster, subject.clone(), pgevict.clone(), schedule, start),
            drive(&cluster, listener.clone(), floor.clone(), schedule, half),
        )
    })?;
    let deadline = Instant::now() + LAST_EVENTS;
    while ledgers.iter().any(|ledger| ledger.missing() > 0) && Instant::now() < deadline {
        writers.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
    }

    let warm_up = schedule.events_in(WARM_UP);
    let rows = [("floor", floor), ("pgevict", pgevict)]
        .map(|(system, ledger)| Latencies::of(system, ledger, warm_up));
    report(&rows, arguments.rate)?;
    println!("{}", subject.told());
    println!(
        "behind schedule at most {:.1} ms",
        late.0.max(late.1).as_secs_f64() * 1e3
    );
    subject.must_not_have_been_reset()?;
    application.block_on(subject.stop());
    ensure!(
        ledgers.iter().all(|ledger| ledger.missing() == 0),
        "events were lost"
    );
    Ok(())
}

async fn start(arguments: &Arguments) -> Result<Cluster> {
    let (options, commits) = match arguments.flush {
        Flush::Wait => (ClusterOptions::new().durable(), "commits wait for the disk"),
        Flush::Skip => (ClusterOptions::new(), "commits wait for no disk"),
    };
    let cluster = options.start().await?;
    println!("PostgreSQL {}, {commits}", cluster.major_version());
    Admin::connect(&Config::from_url(cluster.url())?)
        .await?
        .migrate()
        .await?;
    Ok(cluster)
}
