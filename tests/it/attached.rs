//! Caches that the application has already, on a running instance.

use std::time::Duration;

use dashmap::DashMap;
use pgevict::cache::{Attached, Mark, Stored};
use pgevict::{Config, Pgevict, tag};
use tokio_postgres::Client;

use crate::support::World;
use crate::support::app::{App, PATIENCE, key};

type Map = DashMap<String, String>;

#[derive(Clone, Copy)]
enum Read {
    AfterToken,
    AsMarked,
}

/// One load; the statement gives the value and its mark.
async fn fill(map: &Attached<Map>, db: &Client, read: Read) -> Stored {
    let token = map.token().expect("a token");
    let row = db
        .query_one("select v, pgevict.mark() from kv where k = 'k'", &[])
        .await
        .unwrap();
    let mark: Mark = row.get::<_, &str>(1).parse().unwrap();
    let token = match read {
        Read::AfterToken => token,
        Read::AsMarked => token.marked(&mark).expect("a mark of this server"),
    };
    map.store(&key("k"), &[tag!("group:{}", 7)], &token, |map| {
        map.insert("k".to_owned(), row.get(0));
    })
}

fn held(map: &Attached<Map>) -> Option<String> {
    map.cache().get("k").map(|value| value.clone())
}

#[tokio::test]
async fn a_map_of_the_application_follows_the_log() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |_| ()).await;
    let map = app.pgevict.attach(Map::new());
    assert!(map.is_fresh());
    for (n, emit) in [
        "emit(array['k'])",
        "emit('{}', array['group:7'])",
        "evict_prefix('gro')",
        "flush()",
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(
            fill(&map, &app.db, Read::AfterToken).await,
            Stored::Kept,
            "{emit}"
        );
        let old = map.token().unwrap();
        world
            .run(&format!(
                "begin; update kv set v = 'v{n}' where k = 'k'; select pgevict.{emit}; \
                 select pgevict.emit(array['done']); commit"
            ))
            .await;
        app.event_for("done", PATIENCE).await;
        assert_eq!(held(&map), None, "{emit}");
        let stored = map.store(&key("k"), &[tag!("group:{}", 7)], &old, |map| {
            map.insert("k".to_owned(), "old".to_owned());
        });
        assert_eq!((stored, held(&map)), (Stored::Refused, None), "{emit}");
    }
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_crash_of_the_server_empties_the_map() {
    let world = World::with_kv().await;
    let app = App::start(&world, "a", |_| ()).await;
    let map = app.pgevict.attach(Map::new());
    assert_eq!(fill(&map, &app.db, Read::AfterToken).await, Stored::Kept);
    let old = map.token().unwrap();
    world.cluster.kill().await.unwrap();
    world.cluster.start_again().await.unwrap();
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!((held(&map), map.tagged()), (None, 0));
    let stored = map.store(&key("k"), &[], &old, |_| panic!("a token of another life"));
    assert_eq!(stored, Stored::Refused);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_value_of_an_old_snapshot_is_kept_only_if_nothing_touched_it_since() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |_| ()).await;
    let map = app.pgevict.attach(Map::new());
    app.db
        .batch_execute("begin isolation level repeatable read; select from kv")
        .await
        .unwrap();
    assert_eq!(fill(&map, &app.db, Read::AsMarked).await, Stored::Kept);
    world.set("k", "v2").await;
    app.applied("k").await;
    assert_eq!(fill(&map, &app.db, Read::AsMarked).await, Stored::Refused);
    assert_eq!(held(&map), None);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_disabled_instance_stores_nothing() {
    let mut config = Config::from_url("postgresql://nobody@127.0.0.1:1/none").unwrap();
    config.enabled = false;
    let pgevict = Pgevict::builder(config).start().await.unwrap();
    let map = pgevict.attach(Map::new());
    assert!(map.token().is_none() && !map.is_fresh());
    tokio::time::timeout(Duration::from_secs(5), pgevict.shutdown())
        .await
        .unwrap();
}
