//! A socket that stays open while nothing passes is noticed by the probe; the event arrives over a new session.

use std::time::{Duration, Instant};

use pgevict::lab::Relay;
use pgevict::{Cause, Listening};

use crate::support::World;
use crate::support::app::{App, slow_poll};

/// Probe interval 5 s with jitter up to 6 s, probe timeout 2 s, and the reconnect.
const DOCUMENTED: Duration = Duration::from_secs(15);

#[tokio::test]
async fn c03_a_half_open_listen_session_is_noticed() {
    let world = World::with_kv().await;
    // Only the LISTEN session leads through the relay: the fetch session stays whole.
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start(&world, "a", slow_poll).await;
    app.pgevict.shutdown().await;
    let mut config = crate::support::app::config(&world.cluster.url(), "b");
    slow_poll(&mut config);
    config.listen_url = Some(relay.url(&world.cluster).into());
    app = App::start_with(&world, pgevict::Pgevict::builder(config)).await;
    let backend = "select pid from pg_stat_activity where application_name = 'pgevict/listen/b'";
    let old = world.text(backend).await;

    relay.freeze();
    let frozen = Instant::now();
    world.set("k", "v2").await;
    app.until_lost(DOCUMENTED).await;
    let lost = app.pgevict.status().listening;
    assert!(
        matches!(lost, Listening::Lost(Cause::HalfOpen | Cause::Deadline)),
        "{lost:?}"
    );
    relay.thaw();
    app.event_for("k", DOCUMENTED).await;
    assert!(frozen.elapsed() < DOCUMENTED, "{:?}", frozen.elapsed());
    app.until_proved(Duration::from_secs(5)).await;
    let new = world
        .text(&format!(
            "{backend} and pid <> {old} order by backend_start desc limit 1"
        ))
        .await;
    assert_ne!(new, "", "a new LISTEN backend");
    app.pgevict.shutdown().await;
}
