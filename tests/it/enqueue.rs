//! Row A4: events enqueued outside of a transaction are gathered, bounded, retried, flushed at a stop, and a loss is an
//! error to its caller.

use std::time::{Duration, Instant};

use futures::future::join_all;
use pgevict::lab::{Relay, StopMode};
use pgevict::{Config, Enqueued, Event, Pgevict};
use serde_json::json;
use tokio::time::timeout;

use crate::support::World;
use crate::support::app::{App, PATIENCE, config, key, slow_poll};

/// An event about this key.
fn stale(k: &str) -> Event {
    Event::new("kv.updated").key(key(k))
}

/// An event that passes our own check and that the server refuses: it says nothing.
fn poison() -> Event {
    Event::default()
}

/// An instance whose enqueued events, and nothing else, go through the relay.
async fn behind(world: &World, relay: &Relay, change: impl FnOnce(&mut Config)) -> App {
    let mut settings = config(&relay.url(&world.cluster), "a");
    settings.listen_url = Some(world.cluster.url().into());
    change(&mut settings);
    App::start_with(world, Pgevict::builder(settings)).await
}

async fn all_written(handles: Vec<Enqueued>) {
    let told = timeout(PATIENCE, join_all(handles))
        .await
        .expect("they are written");
    for one in told {
        assert!(one.unwrap().xid().is_some());
    }
}

/// Keys in the order in which they were written.
async fn written(world: &World) -> Vec<String> {
    let events = world.events().await;
    events.into_iter().flat_map(|event| event.keys).collect()
}

async fn transactions(world: &World) -> usize {
    let count = "select count(distinct xid) from pgevict.event";
    world.text(count).await.parse().unwrap()
}

#[tokio::test]
async fn a4_a_window_is_one_transaction_in_the_order_of_the_calls() {
    let world = World::start().await;
    let mut app = App::start(&world, "a", |config| {
        config.emit.window = Duration::from_millis(300);
    })
    .await;
    let keys: Vec<_> = (0..100).map(|n| format!("k{n:03}")).collect();
    let handles = keys
        .iter()
        .map(|k| app.pgevict.enqueue(stale(k)).unwrap())
        .collect();
    assert_eq!(app.pgevict.status().queued, 100);
    all_written(handles).await;
    assert_eq!(transactions(&world).await, 1);
    // Everything that an event says, as `emit` writes it.
    let full = Event::updated("queue", 7)
        .key(key("queue:\"7\""))
        .tag(pgevict::tag!("t:{}", "é"))
        .prefix(pgevict::prefix!("p:"))
        .changes(json!({"ttl": {"old": 1, "new": "2\n"}}));
    let one = app.pgevict.enqueue(full.clone()).unwrap();
    let flush = app.pgevict.enqueue(Event::flush()).unwrap();
    all_written(vec![one, flush]).await;
    let row = world
        .admin
        .query_one(
            "select keys || tags || prefixes, type, entity_type, entity_id, changes, source from pgevict.event \
             where type = 'queue.updated'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, Vec<String>>(0), ["queue:\"7\"", "t:%C3%A9", "p:"]);
    assert_eq!(row.get::<_, &str>(1), "queue.updated");
    assert_eq!((row.get::<_, &str>(2), row.get::<_, &str>(3)), ("queue", "7"));
    assert_eq!(Some(row.get::<_, serde_json::Value>(4)), full.changes);
    assert_eq!(row.get::<_, &str>(5), "a");
    let delivered = app.keys().await;
    assert_eq!(delivered[..100], keys);
    let events = world.events().await;
    assert_eq!(
        events
            .iter()
            .flat_map(|event| &event.keys)
            .take(100)
            .collect::<Vec<_>>(),
        keys.iter().collect::<Vec<_>>()
    );
    assert!(events.last().unwrap().flush);
    let status = app.pgevict.status();
    assert_eq!((status.queued, status.published, status.unpublished), (0, 102, 0));
    // Many at once: full transactions, whatever the window.
    let handles = (0..2_500)
        .map(|n| app.pgevict.enqueue(stale(&format!("m{n}"))).unwrap())
        .collect();
    all_written(handles).await;
    assert_eq!(transactions(&world).await, 3);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a3_what_was_enqueued_is_applied_here_right_after_its_commit() {
    let world = World::with_kv().await;
    world.run("select pgevict.set_wake('off')").await;
    let app = App::start(&world, "a", slow_poll).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    world.run("update kv set v = 'v2'").await;
    let began = Instant::now();
    let emitted = app.pgevict.enqueue(stale("k")).unwrap().await.unwrap();
    assert_eq!(app.held("k"), None);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "not by the poll of 60 s"
    );
    assert_eq!(
        emitted.xid().unwrap().to_string(),
        world.text("select xid from pgevict.event").await
    );
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a4_the_queue_is_bounded_and_what_it_holds_is_written_once_the_database_is_back() {
    let world = World::start().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let app = behind(&world, &relay, |config| {
        config.emit.bound = 10;
        config.session.statement_timeout = Duration::from_millis(500);
        config.session.connect_timeout = Duration::from_millis(500);
    })
    .await;
    all_written(vec![app.pgevict.enqueue(stale("before")).unwrap()]).await;
    relay.freeze();
    let handles: Vec<_> = (0..10)
        .map(|n| app.pgevict.enqueue(stale(&format!("k{n}"))).unwrap())
        .collect();
    let full = app.pgevict.enqueue(stale("k10")).unwrap_err();
    assert!(full.is_refused(), "{full:?}");
    for word in ["10 events wait", "emit.bound"] {
        assert!(full.to_string().contains(word), "{full}");
    }
    // A try has failed, and those on their way still count.
    app.until(|_| relay.attempts() >= 4, PATIENCE).await;
    assert!(app.pgevict.enqueue(stale("k10")).is_err());
    assert_eq!(app.pgevict.status().queued, 10);
    relay.close_existing();
    relay.thaw();
    all_written(handles).await;
    let keys = written(&world).await;
    // At least once, in order.
    let mut once = keys.clone();
    once.dedup();
    let wanted: Vec<_> = (0..10).map(|n| format!("k{n}")).collect();
    assert!(wanted.iter().all(|k| once.contains(k)), "{keys:?}");
    assert!(!once.contains(&"k10".to_owned()));
    all_written(vec![app.pgevict.enqueue(stale("k10")).unwrap()]).await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a4_what_was_enqueued_outlives_a_restart_of_the_server() {
    let world = World::start().await;
    let app = App::start(&world, "a", |_| ()).await;
    all_written(vec![app.pgevict.enqueue(stale("before")).unwrap()]).await;
    world.cluster.stop(StopMode::Fast).await.unwrap();
    let handles = vec![
        app.pgevict.enqueue(stale("k1")).unwrap(),
        app.pgevict.enqueue(stale("k2")).unwrap(),
    ];
    // It tries in vain before the server is back.
    app.until(|status| status.queued == 2 && status.degraded.is_some(), PATIENCE)
        .await;
    world.cluster.start_again().await.unwrap();
    all_written(handles).await;
    let db = world.cluster.connect().await.unwrap();
    let keys = crate::support::text(
        &db,
        "select string_agg(keys[1], ' ' order by id) from pgevict.event",
    )
    .await;
    assert_eq!(keys, "before k1 k2");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a4_a_link_that_is_cut_in_the_commit_writes_again_rather_than_not_at_all() {
    let world = World::start().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let app = behind(&world, &relay, |config| {
        config.session.statement_timeout = Duration::from_secs(1);
    })
    .await;
    all_written(vec![app.pgevict.enqueue(stale("before")).unwrap()]).await;
    relay.hold_matching("commit\0", Duration::from_secs(30));
    let handle = app.pgevict.enqueue(stale("k")).unwrap();
    timeout(PATIENCE, relay.until_held(1)).await.unwrap();
    relay.cut();
    relay.pass();
    all_written(vec![handle]).await;
    assert_eq!(
        written(&world).await,
        ["before", "k"],
        "the held COMMIT never arrived"
    );
    // The server commits, but its answer is lost: written twice, which is harmless, rather than perhaps never.
    world
        .run(
            "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.5); return null; end $$; \
             create constraint trigger slow after insert on pgevict.event deferrable initially deferred \
             for each row execute function slow()",
        )
        .await;
    let handle = app.pgevict.enqueue(stale("twice")).unwrap();
    let committing = "select count(*) from pg_stat_activity where application_name = 'pgevict/emit/a' \
                      and query = 'commit' and wait_event = 'PgSleep'";
    let reached = timeout(PATIENCE, async { while world.text(committing).await != "1" {} });
    assert!(reached.await.is_ok(), "it commits");
    relay.cut();
    relay.pass();
    all_written(vec![handle]).await;
    assert_eq!(written(&world).await, ["twice", "twice"]);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a4_one_that_the_server_refuses_takes_no_other_with_it() {
    let world = World::start().await;
    let app = App::start(&world, "a", |_| ()).await;
    let mut wanted = Vec::new();
    let mut handles = Vec::new();
    for n in 0..40 {
        let event = match n {
            7 | 23 => poison(),
            // jsonb cannot hold it.
            31 => Event::new("a.b").changes(json!({"f": {"old": "a\0b"}})),
            n => {
                wanted.push(format!("k{n}"));
                stale(&format!("k{n}"))
            }
        };
        handles.push(app.pgevict.enqueue(event).unwrap());
    }
    let told = timeout(PATIENCE, join_all(handles)).await.unwrap();
    for (n, one) in told.into_iter().enumerate() {
        match (n, one) {
            (7 | 23, Err(error)) => {
                assert!(
                    error.is_invalid() && error.to_string().contains("no key"),
                    "{error:?}"
                );
                assert_eq!(error.sqlstate(), Some("22023"));
            }
            (31, Err(error)) => assert!(error.is_invalid(), "{error:?}"),
            (n, one) => assert!(one.is_ok(), "{n}: {one:?}"),
        }
    }
    assert_eq!(written(&world).await, wanted);
    let status = app.pgevict.status();
    assert_eq!((status.queued, status.published, status.unpublished), (0, 37, 3));
    // What our own check finds is told at once.
    let error = app
        .pgevict
        .enqueue(Event::new("x").prefix(pgevict::prefix!("")))
        .unwrap_err();
    assert!(error.is_invalid(), "{error:?}");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a4_without_the_right_to_emit_each_caller_is_told() {
    let world = World::start().await;
    world
        .run("create role reader login; grant pgevict_reader to reader; create role writer login; grant pgevict_emitter to writer")
        .await;
    let url = world.cluster.url().replace("postgres@", "reader@");
    assert!(url.contains("reader@"), "{url}");
    let app = App::start_at(&world, &url, "a", |config| config.warden.enabled = false).await;
    let handles = (0..5).map(|n| app.pgevict.enqueue(stale(&format!("k{n}"))).unwrap());
    for told in timeout(PATIENCE, join_all(handles)).await.unwrap() {
        let error = told.unwrap_err();
        assert!(
            error.is_refused() && error.to_string().contains("pgevict_emitter"),
            "{error:?}"
        );
    }
    assert_eq!(app.pgevict.status().unpublished, 5);
    app.pgevict.shutdown().await;
    // Nothing but that right is needed.
    let app = App::start_at(&world, &url, "a", |config| {
        config.warden.enabled = false;
        config.listen_url = Some(url.clone().into());
        config.url = Some(url.replace("reader@", "writer@").into());
    })
    .await;
    all_written(vec![app.pgevict.enqueue(stale("k")).unwrap()]).await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a4_a_stop_writes_what_waits_and_nobody_need_hold_a_handle() {
    let world = World::start().await;
    let app = App::start(&world, "a", |config| config.emit.window = Duration::from_secs(10)).await;
    for n in 0..50 {
        drop(app.pgevict.enqueue(stale(&format!("k{n}"))).unwrap());
    }
    let began = Instant::now();
    app.pgevict.shutdown().await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "it does not wait for the window"
    );
    assert_eq!(written(&world).await.len(), 50);
    let status = app.pgevict.status();
    assert_eq!((status.queued, status.published), (0, 50));
    let error = app.pgevict.enqueue(stale("late")).unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("stopped"),
        "{error:?}"
    );
    // So does dropping the last handle of the instance.
    let app = App::start(&world, "b", |config| config.emit.window = Duration::from_secs(10)).await;
    let handle = app.pgevict.enqueue(stale("k")).unwrap();
    drop(app);
    all_written(vec![handle]).await;
}

#[tokio::test]
async fn a4_what_a_stop_cannot_write_is_an_error_to_its_caller() {
    let world = World::start().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let app = behind(&world, &relay, |_| ()).await;
    all_written(vec![app.pgevict.enqueue(stale("before")).unwrap()]).await;
    relay.freeze();
    let handles: Vec<_> = (0..3)
        .map(|n| app.pgevict.enqueue(stale(&format!("k{n}"))).unwrap())
        .collect();
    timeout(PATIENCE, app.pgevict.shutdown()).await.unwrap();
    for told in join_all(handles).await {
        let error = told.unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
    }
    let status = app.pgevict.status();
    assert_eq!((status.queued, status.published, status.unpublished), (0, 1, 3));
}

#[tokio::test]
async fn a4_disabled_it_does_nothing_and_says_so() {
    let settings = || {
        let mut settings = config("postgresql://nobody@127.0.0.1:1/nothing", "a");
        settings.enabled = false;
        settings
    };
    let pgevict = Pgevict::builder(settings()).start().await.unwrap();
    let emitted = pgevict.enqueue(stale("k")).unwrap().await.unwrap();
    assert_eq!(emitted.xid(), None);
    assert_eq!(pgevict.status().queued, 0);
    pgevict.shutdown().await;
}
