//! A load that read before a change does not put the old value back after the change was applied.

use std::sync::Arc;
use std::time::Duration;

use pgevict::tag;
use tokio::sync::{Barrier, Notify};

use crate::support::World;
use crate::support::app::{App, key, slow_poll};

/// The event that overtakes the load.
async fn overtaken_by(emit: &str) {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", slow_poll).await;
    let (read, release) = (Arc::new(Barrier::new(2)), Arc::new(Notify::new()));
    let cache = app.cache.clone();
    let db = world.cluster.connect().await.unwrap();
    let loading = tokio::spawn({
        let (read, release) = (read.clone(), release.clone());
        async move {
            let k = key("k");
            let answer = cache.get_or_load(&k, |load| async move {
                let row = db.query_one("select v from kv where k = 'k'", &[]).await?;
                read.wait().await;
                release.notified().await;
                Ok::<_, tokio_postgres::Error>(load.found(row.get::<_, String>(0)).tag(tag!("group:{}", 7)))
            });
            answer.await.unwrap().into_value()
        }
    });
    read.wait().await;
    world
        .run(&format!(
            "begin; update kv set v = 'v2' where k = 'k'; {emit}; select pgevict.emit(array['done']); commit"
        ))
        .await;
    app.event_for("done", Duration::from_secs(2)).await;
    release.notify_one();
    let got = loading.await.unwrap();
    assert!(matches!(got.as_deref(), Some("v1" | "v2")), "{got:?}");
    assert_eq!(app.get("k").await.as_deref(), Some("v2"), "after {emit}");
    assert_eq!(app.held("k").as_deref(), Some("v2"), "and it is cached");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn c45_by_its_key() {
    overtaken_by("select pgevict.emit(array['k'])").await;
}

#[tokio::test]
async fn c45_by_a_tag_that_only_the_load_knows() {
    overtaken_by("select pgevict.emit('{}', array['group:7'])").await;
}

#[tokio::test]
async fn c45_by_a_prefix_of_key_or_tag() {
    overtaken_by("select pgevict.evict_prefix('gro')").await;
    overtaken_by("select pgevict.evict_prefix('k')").await;
}

#[tokio::test]
async fn c45_by_a_flush() {
    overtaken_by("select pgevict.flush()").await;
}

#[tokio::test]
async fn c45_many_loads_and_writes_at_once_leave_no_old_value() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    for round in 0..100 {
        let value = format!("r{round}");
        let (first, second, third, ()) =
            tokio::join!(app.get("k"), app.get("k"), app.get("k"), world.set("k", &value));
        for got in [first, second, third] {
            assert!(got.is_some());
        }
        app.pgevict.sync(Duration::from_secs(5)).await.unwrap();
        assert_eq!(app.get("k").await.as_deref(), Some(value.as_str()));
    }
    // A negative result is overtaken like a value.
    assert_eq!(app.get("new").await, None);
    world.set("new", "born").await;
    app.pgevict.sync(Duration::from_secs(5)).await.unwrap();
    assert_eq!(app.get("new").await.as_deref(), Some("born"));
    app.pgevict.shutdown().await;
}
