//! Installing triggers waited behind an idle transaction, and every query on the table queued up behind the installer:
//! outages of minutes to more than an hour (amfs 373, morpheus 511).

use std::time::{Duration, Instant};

use pgevict::lab::ClusterOptions;
use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, Watched, watch};

use crate::support::World;
use crate::support::app::{App, PATIENCE};

#[tokio::test]
async fn c34_a_first_watch_behind_an_open_writer_holds_nobody_up_and_gives_up_clearly() {
    let mut world = World::start().await;
    world.run("create table hot (id int)").await;
    let holder = world.cluster.connect().await.unwrap();
    holder
        .batch_execute("set application_name = 'holder'; begin; insert into hot values (1)")
        .await
        .unwrap();
    let writer = world.cluster.connect().await.unwrap();
    let writing = tokio::spawn(async move {
        writer
            .batch_execute("set statement_timeout = '1s'")
            .await
            .unwrap();
        let mut worst = Duration::ZERO;
        let until = Instant::now() + Duration::from_millis(3500);
        while Instant::now() < until {
            let start = Instant::now();
            writer.batch_execute("insert into hot values (2)").await.unwrap();
            worst = worst.max(start.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worst
    });
    let start = Instant::now();
    let definition = WatchDefinition::new("hot").key("hot:{id}");
    let error = watch(&mut world.admin, &definition, Duration::from_secs(3))
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(error.to_string().contains("holder"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    let worst = writing.await.unwrap();
    println!("worst wait of a writer: {worst:?}");
    assert!(worst < Duration::from_millis(500), "{worst:?}");

    holder.batch_execute("commit").await.unwrap();
    watch(&mut world.admin, &definition, Duration::from_secs(10))
        .await
        .unwrap();
}

/// As a service that watches its tables at each start, and whose warden checks them all the time.
#[tokio::test]
async fn c34_five_restarts_with_the_watch_in_place_touch_no_table_and_hold_nobody_up() {
    let options = ClusterOptions::new()
        .setting("log_statement", "ddl")
        .setting("log_lock_waits", "on")
        .setting("deadlock_timeout", "20ms");
    let mut world = World::with(options).await;
    world.run("create table hot (id int)").await;
    let definition = WatchDefinition::new("hot").key("hot:{id}");
    let first = watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    assert_eq!(first, Watched::Installed);
    let mark = world.cluster.log().len();
    let holder = world.cluster.connect().await.unwrap();
    holder
        .batch_execute("begin; insert into hot values (1)")
        .await
        .unwrap();
    let writer = world.cluster.connect().await.unwrap();
    let (done_here, done) = tokio::sync::oneshot::channel::<()>();
    let writing = tokio::spawn(async move {
        writer
            .batch_execute("set statement_timeout = '1s'")
            .await
            .unwrap();
        let mut written = 0;
        while done.is_empty() {
            writer.batch_execute("insert into hot values (2)").await.unwrap();
            written += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        written
    });
    for _ in 0..5 {
        let again = watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
        assert_eq!(again, Watched::Unchanged);
        let app = App::start(&world, "a", |config| {
            config.warden.claim = Duration::from_millis(100);
            config.warden.check_interval = Duration::from_millis(100);
        })
        .await;
        app.until(|status| status.watches_not_whole == Some(0), PATIENCE)
            .await;
        app.pgevict.shutdown().await;
    }
    done_here.send(()).unwrap();
    assert!(writing.await.unwrap() > 50);
    let log = world.cluster.log()[mark..].to_owned();
    assert!(
        !log.contains("statement:") && !log.contains("still waiting"),
        "{log}"
    );
}
