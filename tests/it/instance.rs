//! The reference rows that one instance shows, named after their row, and what its front door promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pgevict::lab::Relay;
use pgevict::{Error, Event, Pgevict, Reset, key, prefix, tag};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::World;
use crate::support::app::{App, PATIENCE, config, key as plain, slow_poll};

#[tokio::test]
async fn a2_handlers_by_type_one_that_fails_or_panics_stops_no_other() {
    let world = World::with_kv().await;
    let (seen_here, mut seen) = mpsc::unbounded_channel();
    let report = move |name: &'static str| {
        let seen = seen_here.clone();
        move |event: Arc<pgevict::LoggedEvent>| {
            let seen = seen.clone();
            async move { drop(seen.send((name, event.kind().unwrap_or_default().to_owned()))) }
        }
    };
    let builder = Pgevict::builder(config(&world.cluster.url(), "a"))
        .on("queue.updated", |_| async { Err::<(), _>("it failed") })
        .on("queue.*", |event| async move {
            assert!(event.kind().is_none(), "it panicked")
        })
        .on("queue.*", report("queue.*"))
        .on("queue.deleted", report("queue.deleted"))
        .on("*", report("*"));
    let app = App::start_with(&world, builder).await;
    for kind in ["queue.updated", "queue.deleted", "partition.created"] {
        drop(app.pgevict.emit(&world.admin, Event::new(kind)).await.unwrap());
    }
    let mut all = Vec::new();
    while all.len() < 6 {
        all.push(timeout(PATIENCE, seen.recv()).await.unwrap().unwrap());
    }
    all.sort();
    let expected = [
        ("*", "partition.created"),
        ("*", "queue.deleted"),
        ("*", "queue.updated"),
        ("queue.*", "queue.deleted"),
        ("queue.*", "queue.updated"),
        ("queue.deleted", "queue.deleted"),
    ];
    assert!(
        all.iter().map(|(name, kind)| (*name, kind.as_str())).eq(expected),
        "{all:?}"
    );
    app.until(
        |status| {
            status.handler_errors.get("queue.updated") == Some(&1)
                && status.handler_errors.get("queue.*") == Some(&2)
        },
        PATIENCE,
    )
    .await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a3_own_events_are_applied_right_after_the_commit_and_handlers_may_skip_them() {
    let world = World::with_kv().await;
    let counted = Arc::new(AtomicU64::new(0));
    let others = counted.clone();
    // Nothing is announced and polling is slow: what is seen here came through `transaction`.
    world.run("select pgevict.set_wake('off')").await;
    let mut settings = config(&world.cluster.url(), "a");
    slow_poll(&mut settings);
    let builder = Pgevict::builder(settings).on_others("*", move |_| {
        others.fetch_add(1, Ordering::SeqCst);
        async {}
    });
    let app = App::start_with(&world, builder).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    let mut db = world.cluster.connect().await.unwrap();
    let held_inside = app
        .pgevict
        .transaction(&mut db, async |tx| {
            tx.execute("update kv set v = 'v2' where k = 'k'", &[])
                .await
                .map_err(Box::new)?;
            tx.emit(Event::updated("kv", "k").key(plain("k"))).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(app.held("k"))
        })
        .await
        .unwrap();
    assert_eq!(held_inside.as_deref(), Some("v1"), "never before the commit");
    assert_eq!(app.held("k"), None, "right after it");

    // By hand: in the caller's own transaction, then `applied`.
    let token_of_before = app.cache.token().unwrap();
    let tx = db.transaction().await.unwrap();
    tx.execute("update kv set v = 'v3' where k = 'k'", &[])
        .await
        .unwrap();
    let emitted = app
        .pgevict
        .emit(&tx, Event::updated("kv", "k").key(plain("k")))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    app.pgevict.applied(emitted);
    let stored = app
        .cache
        .store(&plain("k"), Some("v2".to_owned()), &[], &token_of_before);
    assert_eq!(stored, pgevict::cache::Stored::Refused);

    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(app.get("k").await.as_deref(), Some("v3"));
    world.set("other", "x").await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    app.until(|_| counted.load(Ordering::SeqCst) == 1, PATIENCE).await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_transaction_that_fails_applies_and_emits_nothing() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    let mut db = world.cluster.connect().await.unwrap();
    let failed: Result<(), Error> = app
        .pgevict
        .transaction(&mut db, async |tx| {
            tx.emit(Event::updated("kv", "k").key(plain("k"))).await?;
            tx.emit(Event::default()).await
        })
        .await;
    let error = failed.unwrap_err();
    assert!(error.is_invalid(), "{error}");
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(app.held("k").as_deref(), Some("v1"));
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a6_a_queue_event_drops_all_that_hangs_below_it_a_partition_event_one_entry() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    let fill = || {
        for (queue, partition) in [("user-tasks", 1), ("user-tasks", 2), ("mail", 1)] {
            let token = app.cache.token().unwrap();
            let tags = [tag!("queue:{}", queue)];
            let entry = key!("partition:{}:{}", queue, partition);
            assert_eq!(
                app.cache.store(&entry, Some("x".to_owned()), &tags, &token),
                pgevict::cache::Stored::Kept
            );
        }
    };
    let held = || {
        [("user-tasks", 1), ("user-tasks", 2), ("mail", 1)].map(|(queue, partition)| {
            app.held(key!("partition:{}:{}", queue, partition).as_str())
                .is_some()
        })
    };
    fill();
    let event = Event::updated("queue", "user-tasks").tag(tag!("queue:{}", "user-tasks"));
    drop(app.pgevict.emit(&world.admin, event).await.unwrap());
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(held(), [false, false, true]);
    fill();
    let event = Event::deleted("partition", 1).key(key!("partition:{}:{}", "user-tasks", 1));
    drop(app.pgevict.emit(&world.admin, event).await.unwrap());
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(held(), [false, true, true]);
    fill();
    drop(
        app.pgevict
            .emit(&world.admin, Event::new("x").prefix(prefix!("queue:mail")))
            .await
            .unwrap(),
    );
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(held(), [true, true, false], "a prefix reaches tags");
    drop(app.pgevict.emit(&world.admin, Event::flush()).await.unwrap());
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(held(), [false, false, false]);
    app.pgevict.shutdown().await;
}

/// A million burnt ids, rollbacks, savepoints and a prepared transaction: each committed event once, late ones late.
#[tokio::test]
async fn b3_late_commits_are_delivered_and_burnt_ids_cost_nothing() {
    let options = pgevict::lab::ClusterOptions::new().setting("max_prepared_transactions", "5");
    let world = World::with(options).await;
    world.make_kv().await;
    let mut app = App::start(&world, "a", |_| ()).await;
    let slow = world.cluster.connect().await.unwrap();
    slow.batch_execute("begin; select pgevict.emit(array['slow'])")
        .await
        .unwrap();
    world
        .run("begin; select pgevict.emit(array['prepared']); prepare transaction 'p'")
        .await;
    world
        .run("begin; select pgevict.emit(array['kept']); savepoint s; select pgevict.emit(array['undone']); rollback to s; commit")
        .await;
    world
        .run("begin; select pgevict.emit(array['gone']); rollback")
        .await;
    world
        .run("select setval('pgevict.event_id', nextval('pgevict.event_id') + 1000000)")
        .await;
    world.set("after", "x").await;
    assert_eq!(app.keys().await, ["kept", "after"]);
    world.run("commit prepared 'p'").await;
    assert_eq!(app.keys().await, ["prepared"]);
    slow.batch_execute("commit").await.unwrap();
    assert_eq!(app.keys().await, ["slow"]);
    assert!(app.keys().await.is_empty());
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_clean_restart_resumes_and_a_crash_resets() {
    let world = World::with(pgevict::lab::ClusterOptions::new().durable()).await;
    world.make_kv().await;
    let mut app = App::start(&world, "a", |_| ()).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    world.cluster.restart(pgevict::lab::StopMode::Fast).await.unwrap();
    app.until_proved(PATIENCE).await;
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), [], "inside an epoch nothing is dropped");
    assert_eq!(app.held("k").as_deref(), Some("v1"));

    world.cluster.kill().await.unwrap();
    world.cluster.start_again().await.unwrap();
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), [Reset::Epoch]);
    assert_eq!(app.held("k"), None);
    let db = world.cluster.connect().await.unwrap();
    crate::support::app::set(&db, "k", "v2").await;
    app.event_for("k", PATIENCE).await;
    app.db = db;
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_forged_heartbeat_or_another_log_resets() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |_| ()).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    world.until_heartbeats(1).await;
    world.run("update pgevict.heartbeat set sequence = 0").await;
    let deliveries = app.deliveries().await;
    assert_eq!(App::resets(&deliveries), [Reset::Heartbeat]);
    assert_eq!(app.held("k"), None);

    // The epoch row of another cluster, as a restored dump carries it along.
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    world
        .run("update pgevict.epoch set system_identifier = 1; update pgevict.meta set system_identifier = 1")
        .await;
    let resets = App::resets(&app.deliveries().await);
    assert_eq!(resets.len(), 1, "{resets:?}");
    assert_eq!(app.held("k"), None);
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    world.set("k", "v2").await;
    app.event_for("k", PATIENCE).await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn wakes_that_get_lost_are_noticed_and_polling_turns_fast() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |config| {
        config.feed.poll = Duration::from_millis(300)
    })
    .await;
    app.until_proved(PATIENCE).await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    // Announced by its row, but nobody notified: as a wake that got lost.
    world
        .run("insert into pgevict.event (announced, keys) values ('n', array['silent'])")
        .await;
    app.event_for("silent", Duration::from_secs(2)).await;
    app.until(|status| status.missed_wakes == 1, Duration::from_secs(2))
        .await;
    assert_eq!(app.pgevict.status().degraded, Some(pgevict::Cause::MissedWakes));
    for n in 0..12 {
        world.set(&format!("n{n}"), "x").await;
        app.event_for(&format!("n{n}"), Duration::from_secs(1)).await;
    }
    app.until(|status| status.degraded.is_none(), Duration::from_secs(2))
        .await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn mode_off_is_polled_and_is_not_counted_as_missed() {
    let world = World::with_kv().await;
    world.run("select pgevict.set_wake('off')").await;
    let mut app = App::start(&world, "a", |_| ()).await;
    world.set("k", "v2").await;
    app.event_for("k", Duration::from_secs(2)).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let status = app.pgevict.status();
    assert_eq!((status.missed_wakes, status.wakes), (0, 0));
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn an_unknown_envelope_version_is_applied_as_a_flush() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    world.run("insert into pgevict.event (version) values (2)").await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(app.held("k"), None);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn disabled_nothing_listens_caches_bypass_and_emits_are_no_ops() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |config| config.enabled = false).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v1"));
    assert_eq!(app.held("k"), None);
    let emitted = app.pgevict.emit(&world.admin, Event::new("x")).await.unwrap();
    assert_eq!(emitted.xid(), None);
    app.pgevict.applied(emitted);
    assert!(app.pgevict.sync(PATIENCE).await.unwrap_err().is_refused());
    let sessions = "select count(*) from pg_stat_activity where application_name like 'pgevict/%'";
    assert_eq!(world.text(sessions).await, "0");
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_clean_stop_leaves_no_session_and_no_heartbeat() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    world.until_heartbeats(1).await;
    let sessions = "select count(*) from pg_stat_activity where application_name like 'pgevict/%'";
    assert_eq!(world.text(sessions).await, "2", "LISTEN and fetch");
    app.pgevict.shutdown().await;
    app.pgevict.shutdown().await;
    assert_eq!(world.text("select count(*) from pgevict.heartbeat").await, "0");
    timeout(PATIENCE, async {
        while world.text(sessions).await != "0" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_start_that_cannot_work_says_why_at_once() {
    let world = World::with_kv().await;
    let bare = world.cluster.create_database("bare").await.unwrap();
    let start = |url: String| Pgevict::builder(config(&url, "a")).start();
    let within = Duration::from_secs(3);

    let error = timeout(within, start(bare)).await.unwrap().err().unwrap();
    assert!(
        error.is_refused() && error.to_string().contains("pgevict migrate"),
        "{error}"
    );
    let error = timeout(within, start(world.cluster.url_for("nowhere")))
        .await
        .unwrap()
        .err()
        .unwrap();
    assert!(
        error.is_invalid() && error.to_string().contains("nowhere"),
        "{error}"
    );

    let mut settings = config("postgresql://postgres@127.0.0.1:1/postgres", "a");
    settings.feed.sync_timeout = Duration::from_secs(1);
    let error = Pgevict::builder(settings).start().await.err().unwrap();
    let told = error.to_string();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(
        told.contains("sync_timeout") && told.contains("127.0.0.1:1"),
        "{told}"
    );

    let error = Pgevict::builder(config(&world.cluster.url(), "a"))
        .on("a*b", |_| async {})
        .start()
        .await
        .err()
        .unwrap();
    assert!(error.is_invalid() && error.to_string().contains("a*b"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_told_without_any_password() {
    let options = pgevict::lab::ClusterOptions::new().password("right p@ss:/?#");
    let world = World::with(options).await;
    let app = App::start_at(&world, &world.cluster.url(), "a", |_| ()).await;
    app.pgevict.shutdown().await;
    let url = format!(
        "postgresql://postgres:secret-wrong@127.0.0.1:{}/postgres",
        world.cluster.port()
    );
    let error = Pgevict::builder(config(&url, "a")).start().await.err().unwrap();
    assert!(error.is_refused(), "{error}");
    let all = format!("{error} {error:?} {:?}", config(&url, "a"));
    assert!(!all.contains("secret-wrong"), "{all}");
    assert!(error.to_string().contains("password"), "{error}");
}

#[tokio::test]
async fn two_processes_of_one_name_do_not_share_a_heartbeat() {
    let world = World::with_kv().await;
    let mut first = App::start(&world, "a", |_| ()).await;
    let mut second = App::start(&world, "a", |_| ()).await;
    world.until_heartbeats(2).await;
    world.set("k", "v2").await;
    first.event_for("k", PATIENCE).await;
    second.event_for("k", PATIENCE).await;
    assert_eq!(App::resets(&first.deliveries().await), []);
    assert_eq!(App::resets(&second.deliveries().await), []);
    first.pgevict.shutdown().await;
    second.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_catch_up_of_many_pages_is_complete_and_measured() {
    let world = World::with_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", |_| ()).await;
    relay.cut();
    app.until_lost(PATIENCE).await;
    world
        .run("select count(pgevict.emit(array['k' || n])) from generate_series(1, 8000) n")
        .await;
    relay.pass();
    app.until_proved(PATIENCE).await;
    let mut keys = std::collections::BTreeSet::new();
    while keys.len() < 8_000 {
        match timeout(PATIENCE, app.events.next()).await.unwrap().unwrap() {
            pgevict::Delivery::Event(event) => keys.extend(event.keys.clone()),
            pgevict::Delivery::Reset(cause) => panic!("{cause:?}"),
        }
    }
    app.until(|status| status.catch_ups >= 1, PATIENCE).await;
    let (events, took) = app.pgevict.status().last_catch_up.unwrap();
    assert_eq!(events, 8_000);
    assert!(took < Duration::from_secs(5), "{took:?}");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a1_the_envelope_is_the_same_from_sql_and_from_rust() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "server-1", |_| ()).await;
    let changes = serde_json::json!({"max_retries": {"old": 3, "new": 5}});
    let kinds = [
        "queue.created",
        "queue.updated",
        "queue.deleted",
        "partition.created",
        "partition.deleted",
        "consumer_group.created",
        "consumer_group.updated",
    ];
    for kind in kinds {
        let entity = kind.split('.').next().unwrap();
        let mut event = Event::new(kind).key(plain("k")).changes(changes.clone());
        event.entity_type = Some(entity.to_owned());
        event.entity_id = Some("user-tasks".to_owned());
        drop(app.pgevict.emit(&world.admin, event).await.unwrap());
        world
            .run(&format!(
                "select pgevict.emit(array['k'], type => '{kind}', entity_type => '{entity}', entity_id => 'user-tasks', \
                 changes => '{changes}', source => 'server-1')"
            ))
            .await;
    }
    let deliveries = app.deliveries().await;
    assert_eq!(deliveries.len(), 2 * kinds.len());
    for (pair, kind) in deliveries.chunks(2).zip(kinds) {
        let [pgevict::Delivery::Event(rust), pgevict::Delivery::Event(sql)] = pair else {
            panic!("{pair:?}");
        };
        assert_eq!(rust.event, sql.event);
        assert_eq!(rust.kind(), Some(kind));
        assert_eq!(rust.source.as_deref(), Some("server-1"));
        assert_eq!(rust.version, pgevict::event::ENVELOPE_VERSION);
        assert_eq!(rust.changes.as_ref(), Some(&changes));
        let age = rust.created_at.elapsed().unwrap_or_default();
        assert!(age < Duration::from_secs(60), "{age:?}");
        assert_ne!(rust.uuid, sql.uuid);
    }
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a8_events_cause_no_events() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |_| ()).await;
    let tables = world
        .admin
        .query("select oid::regclass::text from pg_class where relnamespace = 'pgevict'::regnamespace and relkind = 'r'", &[])
        .await
        .unwrap();
    assert!(tables.len() >= 4);
    for row in tables {
        let table: String = row.get(0);
        let (state, told) = crate::support::refusal(
            &world.admin,
            &format!("select pgevict.watch('{table}', 'x:{{one}}')"),
        )
        .await;
        assert_eq!(&state[..2], "22", "{table}: {told}");
        assert!(told.contains("pgevict"), "{told}");
    }
    // Heartbeats, fetches and an applied event write no event.
    world.set("k", "v2").await;
    assert_eq!(app.keys().await, ["k"]);
    assert_eq!(world.text("select count(*) from pgevict.event").await, "1");
    app.pgevict.shutdown().await;
}
