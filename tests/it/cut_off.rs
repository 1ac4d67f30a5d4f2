//! Back after a long cut: how soon it is ready, and what it says about it.

use std::time::{Duration, Instant};

use pgevict::Reset;
use pgevict::cache::Stored;
use pgevict::lab::Relay;

use crate::support::World;
use crate::support::app::{App, PATIENCE, key};
use crate::support::lines::Lines;

#[tokio::test]
async fn a5_cut_off_for_100_000_events_it_is_ready_again_within_5_s_and_says_so() {
    const EVENTS: u64 = 100_000;
    let lines = Lines::take();
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let app = App::start_behind(&world, &relay, "a", |_| ()).await;
    // Of each hundred events one empties an entry.
    for n in (0..EVENTS).step_by(100) {
        let token = app.cache.token().unwrap();
        let held = app
            .cache
            .store(&key(&format!("e{n}")), Some("x".to_owned()), &[], &token);
        assert_eq!(held, Stored::Kept);
    }
    relay.cut();
    relay.refuse();
    app.until_lost(PATIENCE).await;
    // Ten events a transaction.
    world
        .run("do $$ begin for n in 0..9999 loop \
              perform pgevict.emit(array['e' || n * 10 + m]) from generate_series(0, 9) m; commit; end loop; end $$")
        .await;

    relay.pass();
    let back = Instant::now();
    app.pgevict.sync(PATIENCE).await.unwrap();
    let took = back.elapsed();
    let status = app.pgevict.status();
    let (events, within) = status.last_catch_up.unwrap();
    println!("ready {took:?} after the link was back; {events} events in {within:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(within <= took, "{within:?} of {took:?}");
    assert_eq!((events, status.catch_ups, status.events), (EVENTS, 1, EVENTS));
    assert!(status.resets.is_empty(), "{status:?}");
    let held = (0..EVENTS)
        .step_by(100)
        .filter(|n| app.held(&format!("e{n}")).is_some());
    assert_eq!(held.count(), 0);
    let said = lines.with("caught up");
    assert!(said.len() == 1 && said[0].contains("events=100000"), "{said:?}");
    assert!(said[0].contains("took_ms="), "{said:?}");
    app.pgevict.shutdown().await;
}

/// As Aurora: what a crash empties elsewhere stays, so that the epoch proves nothing across a reconnect.
#[tokio::test]
async fn where_unlogged_tables_outlive_a_crash_each_reconnect_is_a_new_epoch() {
    let world = World::with_kv().await;
    for (aurora, expected) in [(false, vec![]), (true, vec![Reset::Epoch])] {
        // A function of this name anywhere else means nothing.
        let schema = if aurora { "pg_catalog" } else { "public" };
        world
            .run(&format!(
                "create function {schema}.aurora_version() returns text return '16.4.1'"
            ))
            .await;
        let relay = Relay::before(&world.cluster).await.unwrap();
        let mut app = App::start_behind(&world, &relay, "a", |_| ()).await;
        assert!(app.get("k").await.is_some());
        assert!(
            app.deliveries().await.is_empty(),
            "a first session resets nothing"
        );
        relay.close_existing();
        app.until(|status| status.reconnects_total() > 0, PATIENCE).await;
        app.until_proved(PATIENCE).await;
        assert_eq!(App::resets(&app.deliveries().await), expected);
        assert_eq!(app.held("k").is_none(), aurora);
        world.set("k", "v2").await;
        assert_eq!(app.keys().await, ["k"]);
        assert_eq!(app.get("k").await.as_deref(), Some("v2"));
        app.pgevict.shutdown().await;
    }
}
