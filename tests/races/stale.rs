//! C47: while cut off, a node kept serving its local entries. Here: by declared policy only.

use std::time::Duration;

use pgevict::cache::{Freshness, Lookup, NearCache, Stored};
use pgevict::config::{Config, WhenStale};
use pgevict::event::Event;

use crate::world::{Never, World, key};

fn holding_one(world: &World, policy: WhenStale) -> NearCache<u32> {
    let cache = world
        .builder()
        .when_stale(policy)
        .max_staleness(Duration::from_secs(5))
        .ttl(Duration::from_secs(600))
        .build();
    let token = cache.token().unwrap();
    assert_eq!(cache.store(&key("k"), Some(1), &[], &token), Stored::Kept);
    assert_eq!(cache.store(&key("none"), None, &[], &token), Stored::Kept);
    assert_eq!(cache.get(&key("k")), Lookup::Hit(1, Freshness::Fresh));
    assert_eq!(cache.get(&key("none")), Lookup::Absent(Freshness::Fresh));
    cache
}

async fn load(cache: &NearCache<u32>) -> pgevict::Result<(Option<u32>, Freshness)> {
    let answer = cache
        .get_or_load(&key("k"), |load| async move { Ok::<_, Never>(load.found(2)) })
        .await?;
    Ok((*answer, answer.freshness()))
}

#[tokio::test]
async fn a_cut_off_cache_serves_by_policy_only_and_recovers_without_a_flush() {
    let world = World::new();
    let [bypass, serve, fail] =
        [WhenStale::Bypass, WhenStale::Serve, WhenStale::Fail].map(|policy| holding_one(&world, policy));
    world.hands.advance(Duration::from_millis(5_001));

    assert_eq!(bypass.get(&key("k")), Lookup::Miss);
    assert_eq!(bypass.get(&key("none")), Lookup::Miss);
    assert_eq!(load(&bypass).await.unwrap(), (Some(2), Freshness::Fresh));
    assert_eq!(
        bypass.get(&key("k")),
        Lookup::Miss,
        "what was loaded meanwhile cannot be proved either"
    );

    assert_eq!(serve.get(&key("k")), Lookup::Hit(1, Freshness::Stale));
    assert_eq!(serve.get(&key("none")), Lookup::Absent(Freshness::Stale));
    assert_eq!(load(&serve).await.unwrap(), (Some(1), Freshness::Stale));

    assert_eq!(fail.get(&key("k")), Lookup::Stale);
    assert!(load(&fail).await.unwrap_err().is_stale());

    // The feed comes back: what it missed is applied, the rest is fresh again.
    world.publish("100:100:");
    assert_eq!(fail.get(&key("k")), Lookup::Hit(1, Freshness::Fresh));
    assert_eq!(bypass.get(&key("k")), Lookup::Hit(2, Freshness::Fresh));
    world.change(Event::default().key(key("k")));
    assert_eq!(serve.get(&key("k")), Lookup::Miss);
    assert_eq!(serve.get(&key("none")), Lookup::Absent(Freshness::Fresh));
}

#[test]
fn a_jump_of_the_wall_clock_is_stale_until_the_next_fetch() {
    let world = World::new();
    let cache = holding_one(&world, WhenStale::Serve);
    world.hands.jump_wall(-1_500);
    assert_eq!(cache.get(&key("k")), Lookup::Hit(1, Freshness::Stale));
    world.publish("100:100:");
    assert_eq!(cache.get(&key("k")), Lookup::Hit(1, Freshness::Fresh));
}

#[test]
fn the_time_to_live_counts_suspension() {
    let world = World::new();
    let cache = holding_one(&world, WhenStale::Serve);
    world.hands.advance(Duration::from_secs(599));
    world.publish("100:100:");
    assert!(cache.get(&key("k")).is_hit());
    world.hands.advance(Duration::from_secs(1));
    world.publish("100:100:");
    assert!(cache.get(&key("k")).is_miss());
}

#[tokio::test]
async fn without_a_feed_loads_run_and_nothing_is_stored() {
    let world = World::unstarted(Config::default());
    let cache = world.cache::<u32>();
    for _ in 0..3 {
        assert_eq!(load(&cache).await.unwrap(), (Some(2), Freshness::Fresh));
    }
    assert_eq!((cache.len(), cache.stats().loads), (0, 3));
}
