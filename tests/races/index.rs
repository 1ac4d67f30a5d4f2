//! The tag index stays in step with the entries.

use std::time::Duration;

use pgevict::cache::{NearCache, Stored};
use pgevict::event::{Event, Tag};
use pgevict::sink::Reset;

use crate::world::{World, key, prefix, tag};

fn fill(cache: &NearCache<u32>, count: u32, tags: impl Fn(u32) -> Vec<Tag>) {
    let token = cache.token().unwrap();
    for n in 0..count {
        let stored = cache.store(&key(&format!("k{n}")), Some(n), &tags(n), &token);
        assert_eq!(stored, Stored::Kept);
    }
}

#[test]
fn every_way_out_of_the_cache_takes_the_records_along() {
    let world = World::new();
    let cache = world
        .builder::<u32>()
        .capacity(100)
        .ttl(Duration::from_secs(60))
        .build();
    let own_and_common = |n: u32| vec![tag(&format!("own{n}")), tag("common")];

    // Displaced for room.
    fill(&cache, 5_000, own_and_common);
    let stats = cache.stats();
    assert_eq!(stats.tags, stats.entries + 1);
    assert_eq!(stats.displaced as usize, 5_000 - stats.entries);

    // Replaced under the same key, by other tags.
    let token = cache.token().unwrap();
    for n in 0..5_000 {
        let _ = cache.store(&key(&format!("k{n}")), Some(n), &[tag("replaced")], &token);
    }
    assert_eq!(cache.stats().tags, 1);

    // Removed.
    (0..5_000).for_each(|n| cache.remove(&key(&format!("k{n}"))));
    assert_eq!((cache.stats().entries, cache.stats().tags), (0, 0));

    // Evicted by key, tag, prefix, flush, reset; found expired.
    let touches: [&dyn Fn(); 5] = [
        &|| (0..90).for_each(|n| world.change(Event::default().key(key(&format!("k{n}"))))),
        &|| world.change(Event::default().tag(tag("common"))),
        &|| world.change(Event::default().prefix(prefix("own"))),
        &|| world.change(Event::flush()),
        &|| {
            world.reset(Reset::Pruned);
            world.publish("900:900:");
        },
    ];
    for (n, touch) in touches.iter().enumerate() {
        fill(&cache, 90, own_and_common);
        assert!(cache.stats().tags > 1);
        touch();
        assert_eq!((cache.stats().entries, cache.stats().tags), (0, 0), "touch {n}");
    }
    fill(&cache, 90, own_and_common);
    world.hands.advance(Duration::from_secs(60));
    (0..90).for_each(|n| assert!(cache.get(&key(&format!("k{n}"))).is_miss()));
    assert_eq!((cache.stats().entries, cache.stats().tags), (0, 0));
}

#[test]
fn the_smallest_cache_holds_one_entry() {
    let world = World::new();
    let cache = world.builder::<u32>().capacity(0).build();
    fill(&cache, 10, |_| vec![tag("t")]);
    assert_eq!((cache.len(), cache.stats().tags), (1, 1));
}

#[test]
fn a_cache_that_nobody_holds_is_let_go() {
    let world = World::new();
    let value = std::sync::Arc::new(());
    let cache = world.cache::<std::sync::Arc<()>>();
    let _ = cache.store(&key("k"), Some(value.clone()), &[], &cache.token().unwrap());
    assert_eq!(std::sync::Arc::strong_count(&value), 2);
    drop(cache);
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
    world.change(Event::flush());
    let _next = world.cache::<u32>();
    assert_eq!(
        world.sinks.with(|sinks| sinks.len()),
        2,
        "the memory and the new cache"
    );
}
