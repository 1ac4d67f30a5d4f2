//! Reads that the fill token does not vouch for: on a standby, in a transaction that was open, by another server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgevict::cache::Mark;
use pgevict::lab::{Cluster, ClusterOptions, StopMode};
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::PgLsn;

use crate::support::app::{App, PATIENCE, key};
use crate::support::{World, refusal, text};

const EPOCH: usize = 4;
const KIND: usize = 5;
const OWN: usize = 6;
const REPLAYED: usize = 7;
const SNAPSHOT: usize = 8;

fn field(mark: &str, n: usize) -> String {
    mark.split(';').nth(n).unwrap().to_owned()
}

/// What a read of the table gives, as the loader hands it to the cache.
struct Reading {
    value: Option<String>,
    mark: String,
}

/// Reads in one statement, in whatever transaction the session is in.
async fn read(db: &Client, k: &str, replayed: Option<PgLsn>) -> Reading {
    let sql = "select pgevict.mark($2), (select v from kv where k = $1)";
    let row = db.query_one(sql, &[&k, &replayed]).await.unwrap();
    Reading {
        value: row.get(1),
        mark: row.get(0),
    }
}

/// Reads on a standby as the documentation says: the place first, then the value, in one transaction.
async fn read_with_place(db: &Client, k: &str) -> Reading {
    db.batch_execute("begin").await.unwrap();
    let place = db
        .query_one("select pg_last_wal_replay_lsn()", &[])
        .await
        .unwrap();
    let reading = read(db, k, place.get(0)).await;
    db.batch_execute("commit").await.unwrap();
    reading
}

/// One load of the cache with this reading; what the caller gets.
async fn load(app: &App, k: &str, reading: impl Future<Output = Reading>) -> Option<String> {
    let k = key(k);
    let answer = app.cache.get_or_load(&k, |load| async move {
        let Reading { value, mark } = reading.await;
        let mark: Mark = mark.parse()?;
        let loaded = value.map_or_else(|| load.absent(), |value| load.found(value));
        Ok::<_, pgevict::Error>(loaded.marked(&mark))
    });
    answer.await.unwrap().into_value()
}

/// Waits until the standby has replayed what the primary's log holds by now.
async fn caught_up(primary: &Client, standby: &Client) {
    let end = text(primary, "select pg_current_wal_insert_lsn()").await;
    let waited = timeout(PATIENCE, async {
        let reached = format!("select pg_last_wal_replay_lsn() >= '{end}'");
        while text(standby, &reached).await != "t" {
            // Between two pages of the log the end of the last record is below the place of the next.
            text(primary, "select pg_logical_emit_message(true, '', '')").await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "the standby does not reach {end}");
}

async fn with_standby() -> (World, Cluster, Client, App) {
    // The log is written at once, or the standby lags by the pause of the writer of the log.
    let options = ClusterOptions::new().setting("synchronous_commit", "on");
    let world = World::with(options).await;
    world.make_kv().await;
    let standby = world.cluster.standby().await.unwrap();
    let replica = standby.connect().await.unwrap();
    let app = App::start(&world, "a", |_| ()).await;
    (world, standby, replica, app)
}

#[tokio::test]
async fn a_standby_that_lags_leaves_nothing_stale() {
    let (world, _standby, replica, mut app) = with_standby().await;
    caught_up(&world.admin, &replica).await;
    replica
        .batch_execute("select pg_wal_replay_pause()")
        .await
        .unwrap();
    let paused = timeout(PATIENCE, async {
        while text(&replica, "select pg_get_wal_replay_pause_state()").await != "paused" {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    paused.await.unwrap();
    world.set("k", "v2").await;
    app.applied("k").await;
    app.pgevict.sync(PATIENCE).await.unwrap();

    let got = load(&app, "k", read(&replica, "k", None)).await;
    assert_eq!(got.as_deref(), Some("v1"), "the caller gets what the standby has");
    assert_eq!(app.held("k"), None, "and the cache does not keep it");
    let got = load(&app, "k", read_with_place(&replica, "k")).await;
    assert_eq!((got.as_deref(), app.held("k")), (Some("v1"), None));
    // What nobody changed since is kept, however far the standby lags behind.
    assert_eq!(
        load(&app, "other", read_with_place(&replica, "other")).await,
        None
    );
    assert!(app.cache.get(&key("other")) != pgevict::cache::Lookup::Miss);

    replica
        .batch_execute("select pg_wal_replay_resume()")
        .await
        .unwrap();
    caught_up(&world.admin, &replica).await;
    let got = load(&app, "k", read_with_place(&replica, "k")).await;
    assert_eq!(got.as_deref(), Some("v2"));
    assert_eq!(
        app.held("k").as_deref(),
        Some("v2"),
        "once it has caught up it is kept"
    );
    app.cache.remove(&key("k"));
    load(&app, "k", read(&replica, "k", None)).await;
    assert_eq!(
        app.held("k").as_deref(),
        Some("v2"),
        "without the place, too: nothing was open"
    );
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn with_the_place_replayed_each_load_is_kept_beside_a_long_transaction() {
    let (world, _standby, replica, app) = with_standby().await;
    let long = world.cluster.connect().await.unwrap();
    long.batch_execute("begin; select pg_current_xact_id()")
        .await
        .unwrap();
    let rounds = 40;
    let mut kept_without = 0;
    for round in 0..rounds {
        let value = format!("r{round}");
        world.set("k", &value).await;
        app.pgevict.sync(PATIENCE).await.unwrap();
        caught_up(&world.admin, &replica).await;
        load(&app, "k", read(&replica, "k", None)).await;
        kept_without += usize::from(app.held("k").is_some());
        app.cache.remove(&key("k"));
        let got = load(&app, "k", read_with_place(&replica, "k")).await;
        assert_eq!(got.as_deref(), Some(value.as_str()));
        assert_eq!(app.held("k").as_deref(), Some(value.as_str()), "round {round}");
    }
    assert_eq!(
        kept_without, 0,
        "all that was written is above the xmin of the standby"
    );
    long.batch_execute("rollback").await.unwrap();
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn loads_on_a_standby_amid_writes_never_keep_what_is_older_than_the_last_event() {
    let (world, _standby, replica, app) = with_standby().await;
    let stop = AtomicBool::new(false);
    let loads = async {
        let (mut loads, mut kept) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            if app.held("k").is_some() {
                tokio::time::sleep(Duration::from_micros(200)).await;
                continue;
            }
            loads += 1;
            if loads % 2 == 0 {
                load(&app, "k", read(&replica, "k", None)).await;
            } else {
                load(&app, "k", read_with_place(&replica, "k")).await;
            }
            kept += usize::from(app.held("k").is_some());
        }
        (loads, kept)
    };
    let writes = async {
        for round in 0..150 {
            let value = format!("r{round}");
            world.set("k", &value).await;
            app.pgevict.sync(PATIENCE).await.unwrap();
            let held = app.held("k");
            assert!(
                held.is_none() || held.as_deref() == Some(&value),
                "{held:?} after {value}"
            );
            tokio::time::sleep(Duration::from_millis(round % 7)).await;
            let held = app.held("k");
            assert!(
                held.is_none() || held.as_deref() == Some(&value),
                "{held:?} after {value}"
            );
        }
        stop.store(true, Ordering::Relaxed);
    };
    let ((loads, kept), ()) = tokio::join!(loads, writes);
    println!("{loads} loads, {kept} kept");
    assert!(loads > 50 && kept > 5, "{loads} loads, {kept} kept");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn what_a_transaction_reads_after_it_has_written_is_not_kept() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    let db = &app.db;
    db.batch_execute("begin").await.unwrap();
    load(&app, "k", read(db, "k", None)).await;
    assert_eq!(app.held("k").as_deref(), Some("v1"), "before it writes");
    app.cache.remove(&key("k"));
    db.batch_execute("update kv set v = 'mine' where k = 'k'")
        .await
        .unwrap();
    let got = load(&app, "k", read(db, "k", None)).await;
    assert_eq!((got.as_deref(), app.held("k")), (Some("mine"), None));
    db.batch_execute("savepoint s; update kv set v = 'more' where k = 'k'")
        .await
        .unwrap();
    let got = load(&app, "k", read(db, "k", None)).await;
    assert_eq!((got.as_deref(), app.held("k")), (Some("more"), None));
    db.batch_execute("rollback").await.unwrap();
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_repeatable_read_older_than_an_event_is_not_kept() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |_| ()).await;
    world.set("other", "o1").await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    app.db
        .batch_execute("begin isolation level repeatable read; select from kv")
        .await
        .unwrap();
    world.set("k", "v2").await;
    app.applied("k").await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    let got = load(&app, "k", read(&app.db, "k", None)).await;
    assert_eq!((got.as_deref(), app.held("k")), (Some("v1"), None));
    load(&app, "other", read(&app.db, "other", None)).await;
    assert_eq!(
        app.held("other").as_deref(),
        Some("o1"),
        "nobody changed this one"
    );
    world.set("other", "o2").await;
    app.applied("other").await;
    assert_eq!(app.held("other"), None, "and its event finds it");
    app.db.batch_execute("commit").await.unwrap();
    let got = load(&app, "k", read(&app.db, "k", None)).await;
    assert_eq!(
        (got.as_deref(), app.held("k").as_deref()),
        (Some("v2"), Some("v2"))
    );
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn what_another_server_or_another_life_has_read_is_not_kept() {
    let (world, standby, replica, app) = with_standby().await;
    let other = World::with_kv().await;
    let got = load(&app, "k", read(&other.admin, "k", None)).await;
    assert_eq!(
        (got.as_deref(), app.held("k")),
        (Some("v1"), None),
        "another cluster"
    );

    let before = read(&world.admin, "k", None).await;
    let of_standby = read(&replica, "k", None).await;
    assert_eq!(field(&before.mark, EPOCH), field(&of_standby.mark, EPOCH));
    standby.promote().await.unwrap();
    let promoted = read(&replica, "k", None).await;
    assert_eq!(
        (&*field(&promoted.mark, KIND), &*field(&promoted.mark, EPOCH)),
        ("primary", "-")
    );
    load(&app, "k", async { promoted }).await;
    assert_eq!(
        app.held("k"),
        None,
        "a standby that was promoted has no epoch yet"
    );

    drop(standby);
    world.cluster.kill().await.unwrap();
    world.cluster.start_again().await.unwrap();
    app.pgevict.sync(PATIENCE).await.unwrap();
    load(&app, "k", async { before }).await;
    assert_eq!(app.held("k"), None, "the server crashed since");
    let db = world.cluster.connect().await.unwrap();
    load(&app, "k", read(&db, "k", None)).await;
    assert_eq!(app.held("k").as_deref(), Some("v1"));
    app.pgevict.shutdown().await;
    other.cluster.stop(StopMode::Immediate).await.unwrap();
}

#[tokio::test]
async fn a_text_that_is_no_mark_is_the_loaders_error() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    let k = key("k");
    let answer = app.cache.get_or_load(&k, |load| async move {
        let mark: Mark = "0/3000148".parse()?;
        Ok::<_, pgevict::Error>(load.found("v1".to_owned()).marked(&mark))
    });
    let error = answer.await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        error.is_loader() && cause.contains("is not a mark (version)"),
        "{cause}"
    );
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn the_mark_speaks_of_the_snapshot_of_its_statement() {
    let world = World::with_kv().await;
    let (reader, holder) = (
        world.cluster.connect().await.unwrap(),
        world.cluster.connect().await.unwrap(),
    );
    holder.batch_execute("select pg_advisory_lock(7)").await.unwrap();
    // The mark is made after the wait, and says what was visible before it.
    let sql = "select pg_advisory_lock(7)::text, pgevict.mark(), pg_current_snapshot()::text, v from kv where k = 'k'";
    let meanwhile = async {
        let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
        while world.text(waiting).await != "1" {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        world.set("k", "v2").await;
        holder
            .batch_execute("select pg_advisory_unlock(7)")
            .await
            .unwrap();
    };
    let (row, ()) = tokio::join!(reader.query_one(sql, &[]), meanwhile);
    let row = row.unwrap();
    let (mark, snapshot, v): (String, String, String) = (row.get(1), row.get(2), row.get(3));
    assert_eq!((field(&mark, SNAPSHOT), &*v), (snapshot, "v1"));
}

#[tokio::test]
async fn the_place_counts_on_a_standby_in_read_committed_only() {
    let (world, _standby, replica, app) = with_standby().await;
    caught_up(&world.admin, &replica).await;
    let mark = async |db: &Client| text(db, "select pgevict.mark('0/10')").await;
    assert_eq!(field(&mark(&world.admin).await, REPLAYED), "-");
    let on_standby = mark(&replica).await;
    assert_eq!(
        (&*field(&on_standby, KIND), &*field(&on_standby, REPLAYED)),
        ("standby", "0/10")
    );
    replica
        .batch_execute("begin isolation level repeatable read")
        .await
        .unwrap();
    assert_eq!(
        field(&mark(&replica).await, REPLAYED),
        "-",
        "its snapshot may be older"
    );
    replica.batch_execute("commit").await.unwrap();
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_parallel_worker_gives_the_same_mark() {
    let world = World::start().await;
    world
        .run(
            "create table many as select i from generate_series(1, 200000) i; analyze many; \
             set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0",
        )
        .await;
    world.run("begin; select pg_current_xact_id()").await;
    // Sorted, and so made, by the workers.
    let query = "select pgevict.mark() || ' ' || i from many where i % 1000 = 0 order by 1";
    let explain = format!("explain (analyze, verbose, costs off, timing off) {query}");
    let plan = world.admin.query(&explain, &[]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    let (_, below) = plan.split_once("->  Sort").expect(&plan);
    assert!(plan.starts_with("Gather") && below.contains("mark("), "{plan}");
    assert!(!plan.contains("Workers Launched: 0"), "{plan}");
    let rows = world.admin.query(query, &[]).await.unwrap();
    assert_eq!(rows.len(), 200);
    let mark = world.text("select pgevict.mark()").await;
    let own = world.text("select pg_current_xact_id_if_assigned()").await;
    assert_eq!(field(&mark, OWN), own);
    for row in &rows {
        assert!(row.get::<_, &str>(0).starts_with(&mark), "one mark for all");
    }
    world.run("rollback").await;
}

#[tokio::test]
async fn readers_and_instances_may_mark_and_nobody_else() {
    let world = World::start().await;
    world.run("create role stranger").await;
    for role in ["pgevict_reader", "pgevict_instance", "pgevict_admin"] {
        let session = world.session_of(role).await;
        assert!(
            text(&session, "select pgevict.mark()").await.starts_with("1;"),
            "{role}"
        );
    }
    for role in ["pgevict_emitter", "stranger"] {
        let session = world.session_of(role).await;
        let (code, _) = refusal(&session, "select pgevict.mark()").await;
        assert_eq!(code, "42501", "{role}");
    }
}
