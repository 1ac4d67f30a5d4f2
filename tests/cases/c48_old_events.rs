//! A new instance starts at the head: old events neither replay nor drop what it caches.

use std::time::{Duration, Instant};

use crate::support::World;
use crate::support::app::{App, key};

#[tokio::test]
async fn c48_old_events_drop_nothing_of_a_new_instance() {
    let world = World::with_kv().await;
    world
        .run("select count(pgevict.emit(array['k' || n % 1000])) from generate_series(1, 100000) n")
        .await;
    let start = Instant::now();
    let mut app = App::start(&world, "a", |_| ()).await;
    let ready = start.elapsed();
    assert!(ready < Duration::from_secs(2), "ready after {ready:?}");
    for n in 0..1_000 {
        let token = app.cache.token().unwrap();
        let stored = app
            .cache
            .store(&key(&format!("k{n}")), Some("x".to_owned()), &[], &token);
        assert_eq!(stored, pgevict::cache::Stored::Kept);
    }
    assert!(app.keys().await.is_empty(), "no old event is replayed");
    // The next polls reconcile nothing either.
    app.pgevict.sync(Duration::from_secs(5)).await.unwrap();
    let held = (0..1_000)
        .filter(|n| app.held(&format!("k{n}")).is_some())
        .count();
    assert_eq!(held, 1_000);
    assert_eq!(app.pgevict.status().events, 0);
    app.pgevict.shutdown().await;
}
