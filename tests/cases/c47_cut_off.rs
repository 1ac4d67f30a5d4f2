//! An instance that is cut off stops serving what it cannot prove, and never serves the old value after it is back.

use std::time::{Duration, Instant};

use pgevict::config::WhenStale;
use pgevict::lab::Relay;
use pgevict::{Key, Reset};

use crate::support::World;
use crate::support::app::{App, PATIENCE};

const MAX_STALENESS: Duration = Duration::from_secs(2);

/// How long it is cut off: short in CI, 60 s when asked.
fn cut_for() -> Duration {
    let seconds = std::env::var("PGEVICT_C47_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(5))
}

async fn cut_off(while_cut: &str, expected: &[Reset]) {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", |config| config.max_staleness = MAX_STALENESS).await;
    let failing = app.pgevict.cache::<String>().when_stale(WhenStale::Fail).build();
    let token = failing.token().unwrap();
    let stored = failing.store(&Key::new("k").unwrap(), Some("v1".to_owned()), &[], &token);
    assert_eq!(stored, pgevict::cache::Stored::Kept);
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));

    relay.cut();
    let cut = Instant::now();
    world.set("k", "v2").await;
    if !while_cut.is_empty() {
        world.run(while_cut).await;
    }
    while cut.elapsed() < cut_for() {
        let asked = cut.elapsed();
        let held = app.held("k");
        if asked > MAX_STALENESS {
            assert_eq!(held, None, "served {asked:?} after the cut");
            assert!(matches!(
                failing.get(&Key::new("k").unwrap()),
                pgevict::cache::Lookup::Stale
            ));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    relay.pass();
    let mut seen = Vec::new();
    let back = Instant::now();
    while app
        .pgevict
        .status()
        .staleness
        .is_none_or(|age| age > MAX_STALENESS)
    {
        assert!(back.elapsed() < PATIENCE, "{:?}", app.pgevict.status());
        seen.push(app.held("k"));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen.push(app.held("k"));
    assert!(!seen.iter().flatten().any(|value| value == "v1"), "{seen:?}");
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), expected);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn c47_the_missed_event_is_caught_up() {
    cut_off("", &[]).await;
}

#[tokio::test]
async fn c47_pruned_events_are_answered_by_a_reset() {
    cut_off("delete from pgevict.event", &[Reset::Pruned]).await;
}
