//! The server merges equal notifications: a wake means "drain until empty", not "take one".

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support::World;
use crate::support::app::{App, slow_poll};

#[tokio::test]
async fn c14_one_wake_brings_all_events_of_a_transaction() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |config| {
        slow_poll(config);
        config.feed.page_min = 100;
        config.feed.page_max = 100;
    })
    .await;
    let second = Duration::from_secs(1);

    world
        .run("begin; select pgevict.emit(array['a1']); select pgevict.emit(array['a2']); select pgevict.emit(array['a3']); commit")
        .await;
    app.event_for("a3", second).await;

    world
        .run("begin; select pgevict.emit(array['b']); select pgevict.emit(array['b']); select pgevict.emit(array['b']); commit")
        .await;
    app.event_for("b", second).await;
    assert!(app.keys().await.iter().all(|key| key == "b"));

    let start = Instant::now();
    world
        .run("begin; select count(pgevict.emit(array['c' || n])) from generate_series(1, 250) n; commit")
        .await;
    let mut keys = BTreeSet::new();
    while keys.len() < 250 {
        assert!(start.elapsed() < second, "{} of 250 keys within 1 s", keys.len());
        match tokio::time::timeout(second, app.events.next()).await {
            Ok(Some(delivery)) => keys.extend(crate::support::app::keys_of(&delivery)),
            _ => panic!("{} of 250 keys", keys.len()),
        }
    }
    assert!(app.pgevict.status().catch_ups >= 1, "it took several pages");
    app.pgevict.shutdown().await;
}
