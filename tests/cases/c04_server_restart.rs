//! After an outage of the server the LISTEN session is back within seconds; the attempts meanwhile are few.

use std::time::Duration;

use pgevict::Listening;
use pgevict::lab::{ClusterOptions, Relay, StopMode};

use crate::support::World;
use crate::support::app::{App, PATIENCE, slow_poll};

/// How long the server is away: short in CI, 20 s when asked.
fn outage() -> Duration {
    let seconds = std::env::var("PGEVICT_C04_OUTAGE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(6))
}

async fn outage_of(mode: StopMode) {
    // Durable: an immediate stop must not lose the table.
    let world = World::with(ClusterOptions::new().durable()).await;
    world.make_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", slow_poll).await;
    let attempts = relay.attempts();

    world.cluster.stop(mode).await.unwrap();
    let cpu = cpu_time();
    tokio::time::sleep(outage()).await;
    let burnt = cpu_time() - cpu;
    let tried = relay.attempts() - attempts;
    world.cluster.start_again().await.unwrap();
    // LISTEN, and the fetch session: what is committed before it rebases is told by the reset.
    app.until(
        |status| status.listening == Listening::Proved && status.degraded.is_none(),
        Duration::from_secs(5),
    )
    .await;

    // Two sessions: LISTEN and fetch, each at most 20 in 20 s; growing pauses make fewer in less time.
    assert!(tried >= 4, "it goes on trying: {tried} attempts");
    assert!(tried <= 40, "{tried} attempts in {:?}", outage());
    let times = relay.attempt_times();
    let outage_times = &times[attempts..attempts + tried];
    let first = outage_times[1] - outage_times[0];
    let longest = outage_times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap();
    assert!(longest > first, "pauses grow: {first:?} to {longest:?}");
    assert!(burnt < Duration::from_secs(1), "{burnt:?} of CPU in the outage");

    let db = world.cluster.connect().await.unwrap();
    crate::support::app::set(&db, "k", "v2").await;
    let took = app.applied("k").await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    app.until(|status| status.degraded.is_none(), PATIENCE).await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn c04_a_fast_stop_and_start() {
    outage_of(StopMode::Fast).await;
}

/// Clients meet "the database system is starting up", and the epoch is a new one.
#[tokio::test]
async fn c04_an_immediate_stop_and_start() {
    outage_of(StopMode::Immediate).await;
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
