//! What is published while the LISTEN session is away arrives when it is back, without a second publish or a poll.

use std::time::{Duration, Instant};

use pgevict::lab::Relay;

use crate::support::World;
use crate::support::app::{App, slow_poll};

#[tokio::test]
async fn c01_nothing_is_lost_across_a_reconnect() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", slow_poll).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    let before = app.pgevict.status().reconnects_total();

    relay.refuse();
    world.kill_listener("a").await;
    app.until_lost(Duration::from_secs(5)).await;
    world.set("k", "v2").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    relay.pass();

    let accepting = Instant::now();
    app.event_for("k", Duration::from_secs(2)).await;
    assert!(accepting.elapsed() < Duration::from_secs(2));
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    assert!(app.pgevict.status().reconnects_total() > before);
    assert!(app.keys().await.is_empty(), "the event is handled once");
    app.pgevict.shutdown().await;
}
