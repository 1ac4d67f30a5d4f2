//! `pgevict doctor`: sessions that hold others up. Each test has a server of its own.

use std::time::Duration;

use pgevict::lab::{Binaries, ClusterOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::cli::{ok, run};
use crate::doctor::Doctor;
use crate::support::World;
use crate::support::app::PATIENCE;

#[tokio::test]
async fn doctor_names_the_listener_that_holds_the_queue() {
    if Binaries::find().unwrap().major() < 17 {
        // The queue has 8 GB there, and no setting makes it small.
        return;
    }
    let world = World::with(ClusterOptions::new().setting("max_notify_queue_pages", "64")).await;
    let idle = world.cluster.connect().await.unwrap();
    idle.batch_execute("set application_name = 'forgetful'; listen news")
        .await
        .unwrap();
    idle.batch_execute("begin; select 1").await.unwrap();
    world
        .run("select pg_notify('news', n || repeat('x', 7000)) from generate_series(1, 30) n")
        .await;
    sleep(Duration::from_secs(1)).await;
    let found = Doctor::asked(&world.cluster.url(), &[])
        .await
        .only("notify-queue-filling");
    for words in ["forgetful", "idle in transaction", "pg_terminate_backend"] {
        assert!(found.contains(words), "{found}");
    }
    // A client that does not read is named as well.
    let deaf = deaf(&world, "select repeat('x', 100000000)").await;
    until(
        &world,
        "select count(*) from pg_stat_activity where wait_event = 'ClientWrite'",
        "1",
    )
    .await;
    let found = Doctor::asked(&world.cluster.url(), &[])
        .await
        .only("notify-queue-filling");
    assert!(found.contains("deaf") && found.contains("ClientWrite"), "{found}");
    drop(deaf);
}

#[tokio::test]
async fn doctor_names_who_waits_for_the_notify_lock_and_who_holds_it() {
    // A commit that waits for a standby that is not there holds the lock meanwhile.
    let world = World::with(ClusterOptions::new().setting("synchronous_standby_names", "nobody")).await;
    world.run("create table t (id int)").await;
    let holder = world.cluster.connect().await.unwrap();
    holder
        .batch_execute("set application_name = 'slow disk'; set synchronous_commit = on")
        .await
        .unwrap();
    let holding = tokio::spawn(async move {
        holder
            .batch_execute("begin; insert into t values (1); notify a; commit")
            .await
    });
    until(
        &world,
        "select count(*) from pg_stat_activity where wait_event = 'SyncRep'",
        "1",
    )
    .await;
    let waiter = world.cluster.connect().await.unwrap();
    waiter
        .batch_execute("set application_name = 'queued up'")
        .await
        .unwrap();
    let waiting = tokio::spawn(async move { waiter.batch_execute("notify b").await });
    until(&world, "select count(*) from pg_locks where not granted", "1").await;
    sleep(Duration::from_millis(250)).await;
    let seen = Doctor::asked(&world.cluster.url(), &[]).await;
    let found = seen.finding("notify-lock-waiters");
    for words in ["slow disk", "queued up", "SyncRep"] {
        assert!(found.contains(words), "{found}");
    }
    // The probe could not be sent: that says nothing about the path.
    assert_eq!(seen.not_checked(), ["listen path"]);
    assert_eq!(
        (seen.code, seen.faults()),
        (1, vec!["notify-lock-waiters".to_owned()])
    );
    world
        .run("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
        .await;
    timeout(PATIENCE, async { tokio::join!(holding, waiting) })
        .await
        .unwrap()
        .0
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn doctor_names_long_transactions_and_what_prepare_cannot_do() {
    let world = World::with(ClusterOptions::new().setting("max_prepared_transactions", "5")).await;
    let url = world.cluster.url();
    world.run("create table t (id int)").await;
    let well = Doctor::asked(&url, &[]).await;
    assert_eq!(
        (well.code, well.codes()),
        (0, vec!["nothing-announced".to_owned()]),
        "{}",
        well.report
    );

    ok(&url, &["wake", "commit"]).await;
    Doctor::asked(&url, &[]).await.only("notify-breaks-prepare");
    ok(&url, &["wake", "adaptive"]).await;

    let writer = world.cluster.connect().await.unwrap();
    writer
        .batch_execute("set application_name = 'coffee break'; begin; insert into t values (1)")
        .await
        .unwrap();
    let reader = world.cluster.connect().await.unwrap();
    reader
        .batch_execute("begin isolation level repeatable read; select 1")
        .await
        .unwrap();
    world
        .run("begin; insert into t values (2); prepare transaction 'o''ne'")
        .await;
    sleep(Duration::from_millis(200)).await;
    assert_eq!(Doctor::asked(&url, &["--long", "1h"]).await.code, 0);
    let found = Doctor::asked(&url, &["--long", "100ms"]).await;
    assert_eq!(
        found.faults(),
        ["long-transaction", "long-transaction"],
        "{}",
        found.report
    );
    println!("{}", run(&url, &["doctor", "--long", "100ms"]).await.out);
    let all = found.report.to_string();
    for words in [
        "coffee break",
        "idle in transaction",
        "rollback prepared 'o''ne'",
        "pg_terminate_backend",
    ] {
        assert!(all.contains(words), "{words}: {all}");
    }
    world.run("rollback prepared 'o''ne'").await;
}

/// A session that asks, and never reads.
async fn deaf(world: &World, sql: &str) -> TcpStream {
    let mut socket = TcpStream::connect(world.cluster.address()).await.unwrap();
    let mut startup = 196_608_u32.to_be_bytes().to_vec();
    startup.extend(b"user\0postgres\0database\0postgres\0application_name\0deaf\0\0");
    socket.write_u32(startup.len() as u32 + 4).await.unwrap();
    socket.write_all(&startup).await.unwrap();
    socket.write_u8(b'Q').await.unwrap();
    socket.write_u32(sql.len() as u32 + 5).await.unwrap();
    socket.write_all(format!("{sql}\0").as_bytes()).await.unwrap();
    socket
}

async fn until(world: &World, sql: &str, wanted: &str) {
    let reached = timeout(PATIENCE, async {
        while world.text(sql).await != wanted {
            sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(reached.await.is_ok(), "never {wanted}: {sql}");
}
