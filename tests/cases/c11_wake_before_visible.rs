//! A writer in another database holds xmin back; the event needs no horizon and arrives at once.

use std::time::Duration;

use crate::support::World;
use crate::support::app::{App, slow_poll};

#[tokio::test]
async fn c11_an_old_writer_elsewhere_delays_nothing() {
    let world = World::with_kv().await;
    world.cluster.create_database("other").await.unwrap();
    let other = world.cluster.connect_to("other").await.unwrap();
    other
        .batch_execute("begin; select pg_current_xact_id()")
        .await
        .unwrap();
    let mut app = App::start(&world, "a", slow_poll).await;
    let xmin = world.text("select pg_snapshot_xmin(pg_current_snapshot())").await;
    world.set("k", "v2").await;
    app.event_for("k", Duration::from_secs(1)).await;
    assert_eq!(
        world.text("select pg_snapshot_xmin(pg_current_snapshot())").await,
        xmin,
        "the old writer did hold xmin back"
    );
    other.batch_execute("commit").await.unwrap();
    assert!(app.keys().await.is_empty(), "handled once");
    app.pgevict.shutdown().await;
}
