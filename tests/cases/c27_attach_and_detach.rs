//! A trigger on a partitioned table knew nothing of partitions that came later, or went (graphql-engine 6261). What ATTACH
//! brings along fires no trigger at all.

use std::time::Duration;

use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, WatchState, watch, watches};

use crate::support::World;
use crate::support::app::{App, PATIENCE, key};

#[tokio::test]
async fn c27_a_filled_table_attached_empties_the_cache_and_a_detached_one_is_reported() {
    let mut world = World::start().await;
    world
        .run(
            "create table parts (id int primary key, v int) partition by range (id); \
              create table low partition of parts for values from (0) to (100); \
              insert into parts values (1, 1); \
              create table late (v int, id int primary key); insert into late values (7, 101)",
        )
        .await;
    let definition = WatchDefinition::new("parts").key("part:{id}");
    watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    let mut app = App::start(&world, "a", |config| {
        config.warden.claim = Duration::from_millis(200);
    })
    .await;
    app.until(|status| status.watches_not_whole == Some(0), PATIENCE)
        .await;
    for (change, within) in [
        (
            "alter table parts attach partition late for values from (100) to (200)",
            10,
        ),
        ("alter table parts detach partition low", 10),
    ] {
        app.deliveries().await;
        let token = app.cache.token().unwrap();
        // As read before: 101 does not exist.
        let stored = app.cache.store(&key("part:101"), None, &[], &token);
        assert_eq!(stored, pgevict::cache::Stored::Kept);
        world.run(change).await;
        let emptied = async {
            while !matches!(app.cache.get(&key("part:101")), pgevict::cache::Lookup::Miss) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let emptied = tokio::time::timeout(Duration::from_secs(within), emptied).await;
        assert!(emptied.is_ok(), "{change}: {:?}", app.pgevict.status());
    }
    // The attached one tells of itself, the detached one no more, which is reported.
    app.deliveries().await;
    world
        .run("update late set v = 8; insert into late values (9, 102); insert into low values (2, 2)")
        .await;
    assert_eq!(app.keys().await, ["part:101", "part:102"]);
    let listed = watches(&world.admin).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].state, WatchState::Ok);
    assert_eq!(listed[0].detached, ["public.low"]);
    app.pgevict.shutdown().await;
}
