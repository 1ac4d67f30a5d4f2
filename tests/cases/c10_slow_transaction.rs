//! A rule "skip the hole after N seconds" passed over numbers of transactions that were still running; their events were
//! lost for ever once they committed (marten 4977, 2370).

use std::time::{Duration, Instant};

use pgevict::Config;

use crate::support::World;
use crate::support::app::{App, PATIENCE, keys_of};
use crate::support::lines::Lines;

/// How long the transaction stays open: short in CI, 120 s when asked.
fn hold() -> Duration {
    let seconds = std::env::var("PGEVICT_C10_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(5))
}

/// All by which anything is passed over, given up or removed, at its minimum. Not the deadlines of sessions: on a loaded
/// machine they would end every session, which delays and never skips.
fn least(config: &mut Config) {
    config.feed.poll = Duration::from_millis(10);
    config.feed.poll_unproved = Duration::from_millis(10);
    config.feed.heartbeat = Duration::from_millis(100);
    config.warden.claim = Duration::from_millis(100);
    config.warden.chores = Duration::from_millis(100);
    config.warden.check_interval = Duration::from_millis(100);
    config.warden.retention = Duration::from_secs(1);
    config.warden.retention_max = Duration::from_secs(1);
}

/// Emits 500 events, one a transaction, over this time.
async fn others(world: &World, first: u32, over: Duration) -> Vec<String> {
    let start = Instant::now();
    let mut keys = Vec::new();
    for n in 0..500 {
        let key = format!("k{}", first + n);
        world.run(&format!("select pgevict.emit(array['{key}'])")).await;
        keys.push(key);
        tokio::time::sleep((over * n / 500).saturating_sub(start.elapsed())).await;
    }
    keys
}

#[tokio::test]
async fn c10_the_event_of_a_slow_transaction_is_delivered_once_however_long_it_took() {
    let lines = Lines::take();
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", least).await;
    let slow = world.cluster.connect().await.unwrap();
    slow.batch_execute("begin; select pgevict.emit(array['kslow'])")
        .await
        .unwrap();

    let expected = others(&world, 0, hold() / 2).await;
    assert_eq!(app.keys().await, expected);
    app.until(|status| status.pruned > 0, PATIENCE).await;
    app.pgevict.shutdown().await;
    drop(app);
    let mut app = App::start(&world, "a", least).await;
    let expected = others(&world, 500, hold() / 2).await;
    assert_eq!(app.keys().await, expected);
    app.until(|status| status.pruned > 0, PATIENCE).await;

    slow.batch_execute("commit").await.unwrap();
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), []);
    assert_eq!(deliveries.iter().flat_map(keys_of).collect::<Vec<_>>(), ["kslow"]);
    // Once: not again by any later fetch.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(app.deliveries().await.is_empty());
    assert!(!lines.with("elected warden").is_empty(), "the log is read");
    for word in ["skip", "gap", "reset"] {
        assert_eq!(lines.with(word), [""; 0]);
    }
    app.pgevict.shutdown().await;
}
