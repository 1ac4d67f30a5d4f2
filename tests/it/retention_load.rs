//! Retention under load: emitters wait for no pruner, fetches stay quick, and what an old snapshot kept goes with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pgevict::lab::ClusterOptions;

use crate::support::World;
use crate::support::app::{App, PATIENCE};

const EMITTERS: u32 = 4;
/// Transactions a second of one emitter, and events of each: 2,000 events a second in all.
const TRANSACTIONS: u32 = 100;
const EVENTS: u32 = 5;

/// How long the old snapshot is held: short in CI, 600 s when asked. From a minute on it counts as a real run.
fn hold() -> Duration {
    let seconds = std::env::var("PGEVICT_LOAD_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(6))
}

/// What holds for a run of this length.
struct Scale {
    retention: Duration,
    /// After the snapshot has ended: by when the table has stopped growing, and for how long it must not grow.
    settled_within: Duration,
    window: Duration,
    naptime: &'static str,
}

impl Scale {
    fn of(hold: Duration) -> Self {
        if hold < Duration::from_secs(60) {
            return Self {
                retention: Duration::from_secs(2),
                settled_within: Duration::from_secs(20),
                window: Duration::from_secs(3),
                naptime: "1s",
            };
        }
        Self {
            retention: (hold / 10).min(Duration::from_secs(60)),
            settled_within: Duration::from_secs(120),
            window: Duration::from_secs(30),
            naptime: "60s",
        }
    }
}

/// Lines of the server's log that say that an emitter waited for this process.
fn waits_for(log: &str, holder: u32) -> Vec<&str> {
    let lines: Vec<_> = log.lines().collect();
    let holds = |detail: &str| {
        let named = detail.split_once("holding the lock: ").map(|(_, pids)| pids);
        named.is_some_and(|pids| {
            let pids = pids.split_once('.').map_or(pids, |(pids, _)| pids);
            pids.split(", ").any(|pid| pid.parse() == Ok(holder))
        })
    };
    lines
        .windows(2)
        .filter(|pair| {
            pair[0].starts_with("<emitter>") && pair[0].contains(" still waiting for ") && holds(pair[1])
        })
        .map(|pair| pair[0])
        .collect()
}

#[test]
fn a_wait_is_told_by_who_holds_the_lock() {
    let log = "<emitter> LOG:  process 7 still waiting for ShareLock on transaction 9 after 50.1 ms\n\
               <emitter> DETAIL:  Processes holding the lock: 11, 12. Wait queue: 7.\n\
               <other> LOG:  process 8 still waiting for ShareLock on transaction 9 after 50.1 ms\n\
               <other> DETAIL:  Process holding the lock: 12. Wait queue: 8.\n";
    assert_eq!(waits_for(log, 12).len(), 1);
    assert_eq!(waits_for(log, 1).len(), 0);
    assert_eq!(waits_for(log, 7).len(), 0);
}

/// Emits on schedule until told to stop.
async fn emit_on_schedule(world: &World, stop: Arc<AtomicBool>, emitted: Arc<AtomicU64>) {
    let client = world.cluster.connect().await.unwrap();
    client
        .batch_execute("set application_name = 'emitter'; set jit = off")
        .await
        .unwrap();
    let emit = format!("select count(pgevict.emit(array['load:' || n])) from generate_series(1, {EVENTS}) n");
    let statement = client.prepare(&emit).await.unwrap();
    let start = Instant::now();
    for n in 1.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        client.execute(&statement, &[]).await.unwrap();
        emitted.fetch_add(u64::from(EVENTS), Ordering::Relaxed);
        let due = Duration::from_secs(1) * n / TRANSACTIONS;
        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
    }
}

/// Durations of fetches, one every 20 ms, with when each began.
async fn fetch_all_the_time(app: &App, stop: &AtomicBool) -> Vec<(Instant, Duration)> {
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        app.pgevict.sync(PATIENCE).await.unwrap();
        took.push((start, start.elapsed()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    took
}

fn p99(fetches: &[(Instant, Duration)], from: Instant, to: Instant) -> Duration {
    let mut took: Vec<_> = fetches
        .iter()
        .filter(|(at, _)| (from..to).contains(at))
        .map(|(_, took)| *took)
        .collect();
    took.sort();
    took[took.len() * 99 / 100]
}

impl World {
    /// Rows of the log, and bytes with its indexes.
    async fn size(&self) -> (u64, u64) {
        let sql = "select count(*) || ' ' || pg_total_relation_size('pgevict.event') from pgevict.event";
        let text = self.text(sql).await;
        let (rows, bytes) = text.split_once(' ').unwrap();
        (rows.parse().unwrap(), bytes.parse().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_2000_events_a_second_no_emitter_waits_for_the_pruner_and_an_old_snapshot_does_no_lasting_harm() {
    let scale = Scale::of(hold());
    let options = ClusterOptions::new()
        .setting("deadlock_timeout", "50ms")
        .setting("log_lock_waits", "on")
        .setting("log_line_prefix", "<%a> ")
        .setting("autovacuum_naptime", scale.naptime);
    let world = World::with(options).await;
    let app = App::start(&world, "a", |config| {
        config.warden.claim = Duration::from_millis(200);
        config.warden.chores = scale.retention / 4;
        config.warden.retention = scale.retention;
        config.feed.heartbeat = Duration::from_millis(500);
    })
    .await;
    app.until(|status| status.warden, PATIENCE).await;
    let pid = "select pid from pg_stat_activity where application_name = 'pgevict/warden/a'";
    let pruner: u32 = world.text(pid).await.parse().unwrap();

    let (stop, emitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let emitting = futures::future::join_all(
        (0..EMITTERS).map(|_| emit_on_schedule(&world, stop.clone(), emitted.clone())),
    );
    let watching = async {
        let old = world.cluster.connect().await.unwrap();
        old.batch_execute("begin isolation level repeatable read; select count(*) from pgevict.event")
            .await
            .unwrap();
        let start = Instant::now();
        tokio::time::sleep(hold()).await;
        let held = world.size().await;
        let end = Instant::now();
        let rate = emitted.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        old.batch_execute("commit").await.unwrap();
        let ended = Instant::now();
        // The emitters go on; a window counts when the end of it is no larger than its beginning.
        let mut sizes = vec![(Instant::now(), world.size().await)];
        let settled = loop {
            tokio::time::sleep(scale.window / 6).await;
            let now = Instant::now();
            sizes.push((now, world.size().await));
            let before = sizes.iter().rev().find(|(at, _)| now - *at >= scale.window);
            let (_, (rows, bytes)) = sizes[sizes.len() - 1];
            // Rows come and go with each batch.
            if before.is_some_and(|(_, (then, size))| bytes <= *size && rows <= then + then / 2) {
                break ended.elapsed() - scale.window;
            }
            assert!(
                ended.elapsed() < scale.settled_within + scale.window,
                "still growing: {sizes:?}"
            );
        };
        stop.store(true, Ordering::Relaxed);
        (start, end, rate, held, settled, sizes)
    };
    let ((start, end, rate, held, settled, sizes), fetches, _) =
        tokio::join!(watching, fetch_all_the_time(&app, &stop), emitting);

    let share = hold() / 5;
    let (first, last) = (
        p99(&fetches, start, start + share),
        p99(&fetches, end - share, end),
    );
    println!(
        "{rate:.0} events a second for {:?}, {} pruned meanwhile and after; fetch p99 {first:?} in the first fifth, \
         {last:?} in the last",
        hold(),
        app.pgevict.status().pruned
    );
    println!(
        "at the end of the snapshot {} rows, {} KiB; settled {settled:?} after it at {} rows, {} KiB",
        held.0,
        held.1 / 1024,
        sizes[sizes.len() - 1].1.0,
        sizes[sizes.len() - 1].1.1 / 1024,
    );
    let log = world.cluster.log();
    println!(
        "{} waits of any kind over 50 ms",
        log.matches(" still waiting for ").count()
    );
    assert_eq!(waits_for(&log, pruner), [""; 0]);
    let status = app.pgevict.status();
    assert!(status.warden && status.pruned > 0, "{status:?}");
    assert!(status.resets.is_empty(), "{status:?}");
    assert!(settled < scale.settled_within, "{settled:?}");
    if hold() >= Duration::from_secs(60) {
        assert!(rate > 1_900.0, "{rate}");
        assert!(last <= first * 3, "{first:?} -> {last:?}");
    }
    app.pgevict.shutdown().await;
}
