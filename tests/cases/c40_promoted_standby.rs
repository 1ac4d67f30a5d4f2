//! The primary goes away and its standby is promoted: the instance finds the new primary, and drops what it held.

use std::time::{Duration, Instant};

use pgevict::Reset;
use pgevict::lab::StopMode;

use crate::support::World;
use crate::support::app::{App, set, slow_poll};

#[tokio::test]
async fn c40_an_instance_follows_the_promotion_by_a_reset() {
    let world = World::with_kv().await;
    let standby = world.cluster.standby().await.unwrap();
    let url = format!(
        "postgresql://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        standby.port(),
        world.cluster.port()
    );
    let mut app = App::start_at(&world, &url, "a", slow_poll).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    assert_eq!(app.held("k").as_deref(), Some("v1"));

    world.cluster.stop(StopMode::Fast).await.unwrap();
    app.until_lost(Duration::from_secs(5)).await;
    // Nobody is the primary for a while: the pauses between attempts grow.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let promoted = Instant::now();
    standby.promote().await.unwrap();
    app.pgevict.sync(Duration::from_secs(10)).await.unwrap();
    app.until_proved(Duration::from_secs(10)).await;
    let took = promoted.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    println!("ready {took:?} after the promotion began");

    assert_eq!(app.held("k"), None, "what was held is dropped");
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), [Reset::Epoch]);
    let db = standby.connect().await.unwrap();
    set(&db, "k", "v2").await;
    let took = app.applied("k").await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    app.pgevict.shutdown().await;
}
