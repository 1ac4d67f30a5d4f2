//! An event that commits after a later one is delivered late, not skipped; nothing else waits for it.

use std::time::Duration;

use crate::support::World;
use crate::support::app::{App, slow_poll};

#[tokio::test]
async fn c08_a_late_commit_below_the_cursor_is_delivered() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", slow_poll).await;
    let slow = world.cluster.connect().await.unwrap();
    slow.batch_execute("begin; select pgevict.emit(array['k1'])")
        .await
        .unwrap();
    world.set("k2", "x").await;
    app.event_for("k2", Duration::from_secs(1)).await;
    // The cursor moves on over other commits meanwhile.
    for _ in 0..10 {
        world.set("k3", "x").await;
        app.event_for("k3", Duration::from_secs(1)).await;
    }
    slow.batch_execute("commit").await.unwrap();
    app.event_for("k1", Duration::from_secs(1)).await;
    assert!(app.keys().await.is_empty(), "each event once");
    app.pgevict.shutdown().await;
}

/// The cursor lives in memory: an instance that starts between the two commits starts at the head, with the open
/// transaction in its in-progress list.
#[tokio::test]
async fn c08_also_when_the_instance_starts_between_the_two_commits() {
    let world = World::with_kv().await;
    let slow = world.cluster.connect().await.unwrap();
    slow.batch_execute("begin; select pgevict.emit(array['k1'])")
        .await
        .unwrap();
    world.set("k2", "x").await;
    let mut app = App::start(&world, "a", slow_poll).await;
    slow.batch_execute("commit").await.unwrap();
    app.event_for("k1", Duration::from_secs(1)).await;
    assert!(app.keys().await.is_empty(), "k2 was committed before the start");
    app.pgevict.shutdown().await;
}
