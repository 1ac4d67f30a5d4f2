//! `wake.listen = false`: an instance without a direct address.

use std::time::Duration;

use pgevict::Listening;

use super::pooler::LENT;
use crate::support::World;
use crate::support::app::{App, PATIENCE};

#[tokio::test]
async fn who_does_not_listen_polls_and_is_well() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |config| {
        config.wake.listen = false;
        config.feed.poll = Duration::from_millis(200);
        config.warden.claim = Duration::from_millis(100);
    })
    .await;
    app.get("k").await;
    world.set("k", "v2").await;
    app.event_for("k", Duration::from_secs(2)).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));

    let before = app.pgevict.status();
    assert_eq!((before.listening, before.degraded), (Listening::Off, None));
    assert_eq!(
        world
            .text("select string_agg(application_name, ' ') from pg_stat_activity where application_name like 'pgevict/%'")
            .await,
        "pgevict/fetch/a"
    );
    assert_eq!(world.text(LENT).await, "0");
    // Five fetches a second are the chosen poll; 50 ms would be twenty.
    app.until(|status| status.fetches >= before.fetches + 5, PATIENCE)
        .await;
    let took = app
        .until(|status| status.fetches >= before.fetches + 10, PATIENCE)
        .await;
    assert!(took > Duration::from_millis(600), "5 fetches took {took:?}");
    let after = app.pgevict.status();
    assert_eq!(
        (after.degraded, after.missed_wakes, after.warden),
        (None, 0, false)
    );
    app.pgevict.shutdown().await;
    world.until_heartbeats(0).await;
}
