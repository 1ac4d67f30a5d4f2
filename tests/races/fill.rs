//! C45: a load that had read the old value finishes after the invalidation and puts the old value back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pgevict::cache::{Lookup, NearCache, Stored};
use pgevict::config::Config;
use pgevict::event::Event;
use pgevict::sink::{Origin, Reset};
use tokio::sync::Barrier;

use crate::world::{Never, World, every_touch, key, tag};

/// Loads under `product:1` and `category:7`; reads, then meets the test twice at the barrier.
async fn load_slowly(cache: NearCache<u32>, database: Arc<AtomicU32>, barrier: Arc<Barrier>) -> Option<u32> {
    cache
        .get_or_load(&key("product:1"), |load| async move {
            let read = database.load(Ordering::SeqCst);
            barrier.wait().await;
            barrier.wait().await;
            let loaded = match read {
                0 => load.absent(),
                read => load.found(read),
            };
            Ok::<_, Never>(loaded.tag(tag("category:7")))
        })
        .await
        .unwrap()
        .into_value()
}

async fn overtaken_fill(old: u32, event: Event, what: &str) {
    let world = World::new();
    let cache = world.cache::<u32>();
    let database = Arc::new(AtomicU32::new(old));
    let barrier = Arc::new(Barrier::new(2));

    let load = tokio::spawn(load_slowly(cache.clone(), database.clone(), barrier.clone()));
    barrier.wait().await;
    database.store(2, Ordering::SeqCst);
    world.change(event);
    barrier.wait().await;
    assert_eq!(
        load.await.unwrap().unwrap_or(0),
        old,
        "{what}: the waiting caller may get it"
    );

    assert!(
        cache.get(&key("product:1")).is_miss(),
        "{what}: the old value was put back"
    );
    let again = cache
        .get_or_load(
            &key("product:1"),
            |load| async move { Ok::<_, Never>(load.found(2)) },
        )
        .await
        .unwrap();
    assert_eq!(*again, Some(2), "{what}");
    assert!(
        cache.get(&key("product:1")).is_hit(),
        "{what}: the new value is kept"
    );
}

#[tokio::test]
async fn a_fill_overtaken_by_an_event_is_not_kept() {
    for (what, event) in every_touch() {
        overtaken_fill(1, event, what).await;
    }
}

#[tokio::test]
async fn a_negative_fill_overtaken_by_an_event_is_not_kept() {
    for (what, event) in every_touch() {
        overtaken_fill(0, event, what).await;
    }
}

#[tokio::test]
async fn an_event_that_touches_something_else_does_not_refuse_the_fill() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let token = cache.token().unwrap();
    world.change(Event::default().key(key("product:2")).tag(tag("category:8")));
    let stored = cache.store(&key("product:1"), Some(1), &[tag("category:7")], &token);
    assert_eq!(stored, Stored::Kept);
}

#[tokio::test]
async fn many_overtaken_loads_leave_nothing_behind() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let barrier = Arc::new(Barrier::new(51));
    let loads: Vec<_> = (0..50)
        .map(|n| {
            let (cache, barrier) = (cache.clone(), barrier.clone());
            tokio::spawn(async move {
                let key = key(&format!("product:{n}"));
                let load = cache.get_or_load(&key, |load| async move {
                    barrier.wait().await;
                    barrier.wait().await;
                    Ok::<_, Never>(load.found(n).tag(tag("category:7")))
                });
                load.await.unwrap();
            })
        })
        .collect();
    barrier.wait().await;
    world.change(Event::default().tag(tag("category:7")));
    barrier.wait().await;
    for load in loads {
        load.await.unwrap();
    }
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.tags, stats.refused), (0, 0, 50));
}

#[tokio::test]
async fn a_late_commit_refuses_a_read_that_the_head_has_long_passed() {
    // 105 is open while the cursor goes to 110; a value is read; then 105 commits.
    let world = World::new();
    let cache = world.cache::<u32>();
    world.publish("105:110:105");
    let token = cache.token().unwrap();
    assert_eq!(cache.store(&key("kept"), Some(1), &[], &token), Stored::Kept);
    world.apply(
        105,
        Event::default().key(key("kept")).key(key("late")),
        Origin::Feed,
    );
    world.publish("111:111:");
    assert!(cache.get(&key("kept")).is_miss());
    assert_eq!(cache.store(&key("late"), Some(1), &[], &token), Stored::Refused);
}

#[tokio::test]
async fn flush_and_reset_void_every_token_issued_before() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let k = key("product:1");
    let before = cache.token().unwrap();
    world.change(Event::flush());
    assert_eq!(cache.store(&k, Some(1), &[], &before), Stored::Refused);
    let between = cache.token().unwrap();
    assert_eq!(cache.store(&k, Some(1), &[], &between), Stored::Kept);
    world.reset(Reset::Epoch);
    assert_eq!(cache.get(&k), Lookup::Miss);
    assert!(cache.is_empty() && cache.token().is_none());
    assert_eq!(cache.store(&k, Some(1), &[], &between), Stored::Refused);
    // A crashed server hands out ids again: the same cursor in a new life is another cursor.
    world.publish("100:100:");
    assert_eq!(cache.store(&k, Some(1), &[], &between), Stored::Refused);
    assert_eq!(
        cache.store(&k, Some(1), &[], &cache.token().unwrap()),
        Stored::Kept
    );
}

/// C05: a warm-up that began before the feed stood misses what was written in between, and no event tells.
#[tokio::test]
async fn a_load_from_before_the_first_cursor_is_not_kept() {
    let world = World::unstarted(Config::default());
    let cache = world.cache::<u32>();
    let (database, barrier) = (Arc::new(AtomicU32::new(1)), Arc::new(Barrier::new(2)));
    let warm_up = tokio::spawn(load_slowly(cache.clone(), database.clone(), barrier.clone()));
    barrier.wait().await;
    database.store(2, Ordering::SeqCst);
    world.publish("200:200:");
    barrier.wait().await;
    assert_eq!(warm_up.await.unwrap(), Some(1));
    assert!(cache.get(&key("product:1")).is_miss());
}
