//! Installing triggers waited behind an idle transaction, and every query on the table queued up behind the installer:
//! outages of minutes to more than an hour (amfs 373, morpheus 511).

use std::time::{Duration, Instant};

use pgevict::store::watch::{WatchDefinition, watch};

use crate::support::World;

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
