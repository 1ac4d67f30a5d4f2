//! Caches that the application has already.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dashmap::DashMap;
use pgevict::cache::Stored;
use pgevict::event::Event;
use pgevict::sink::{Origin, Reset};

use crate::kinds::kinds;
use crate::world::{World, every_touch, key, prefix, tag};

#[test]
fn each_kind_drops_what_an_event_touches_and_refuses_what_it_overtook() {
    for (kind, make) in kinds::<u8>() {
        for (touch, event) in every_touch() {
            let world = World::new();
            let cache = make(&world, 100);
            let (product, tags) = (key("product:1"), [tag("category:7"), tag("all")]);
            let token = world.position.token().unwrap();
            assert_eq!(cache.store(&product, 1, &tags, &token), Stored::Kept, "{kind}");
            assert_eq!(
                cache.store(&key("order:1"), 1, &[tag("all")], &token),
                Stored::Kept
            );
            assert_eq!((cache.get(&product), cache.tags()), (Some(1), 2), "{kind}");

            world.change(event);
            assert_eq!(cache.get(&product), None, "{kind} by {touch}");
            assert_eq!(
                cache.store(&product, 1, &tags, &token),
                Stored::Refused,
                "{kind} by {touch}"
            );
            assert_eq!(cache.get(&product), None, "{kind} by {touch}");
            let others = usize::from(touch != "flush");
            assert_eq!(
                (cache.entries(), cache.tags()),
                (others, others),
                "{kind} by {touch}"
            );

            let token = world.position.token().unwrap();
            assert_eq!(
                cache.store(&product, 2, &tags, &token),
                Stored::Kept,
                "{kind} by {touch}"
            );
            assert_eq!(cache.get(&product), Some(2));
            world.reset(Reset::Epoch);
            assert_eq!((cache.get(&product), cache.tags()), (None, 0), "{kind}: reset");
            assert_eq!(
                cache.store(&product, 2, &tags, &token),
                Stored::Refused,
                "{kind}: reset"
            );
        }
    }
}

#[test]
fn what_the_cache_held_when_it_was_attached_is_dropped() {
    let world = World::new();
    let map = Arc::new(DashMap::new());
    map.insert("product:1".to_owned(), 1);
    let attached = world.attach(map.clone());
    assert!(map.is_empty() && attached.is_fresh());
}

#[test]
fn what_is_put_in_behind_our_back_is_dropped_by_key_prefix_and_flush_only() {
    for (touch, event) in every_touch() {
        let world = World::new();
        let map = Arc::new(DashMap::new());
        let _attached = world.attach(map.clone());
        map.insert("product:1".to_owned(), 1);
        world.change(event);
        let by_tag = matches!(touch, "tag" | "prefix of a tag");
        assert_eq!(map.contains_key("product:1"), by_tag, "{touch}");
    }
}

#[test]
fn the_entry_is_found_by_the_tags_of_the_last_store_alone() {
    let world = World::new();
    let cache = world.attach(DashMap::<String, u64>::new());
    let product = key("product:1");
    let insert = |n: u64| {
        move |cache: &DashMap<String, u64>| {
            cache.insert("product:1".to_owned(), n);
        }
    };
    let token = world.position.token().unwrap();
    for n in 0..5_000 {
        let tags = [tag("all"), tag(&format!("version:{n}"))];
        assert_eq!(cache.store(&product, &tags, &token, insert(n)), Stored::Kept);
    }
    assert_eq!((cache.tagged(), cache.tags()), (1, 2));
    world.change(Event::default().tag(tag("version:4998")));
    assert!(cache.cache().contains_key("product:1"));
    world.change(Event::default().tag(tag("version:4999")));
    assert!(!cache.cache().contains_key("product:1"));
    assert_eq!((cache.tagged(), cache.tags()), (0, 0));

    let token = world.position.token().unwrap();
    assert_eq!(
        cache.store(&product, &[tag("all")], &token, insert(0)),
        Stored::Kept
    );
    assert_eq!(cache.store(&product, &[], &token, insert(0)), Stored::Kept);
    assert_eq!(
        (cache.tagged(), cache.tags()),
        (0, 0),
        "without tags it needs no record"
    );
}

#[test]
fn records_of_entries_that_made_room_are_swept() {
    for (kind, make) in kinds::<u64>() {
        if kind == "DashMap" {
            continue;
        }
        let world = World::new();
        let cache = make(&world, 100);
        let token = world.position.token().unwrap();
        for n in 0..20_000_u64 {
            let tags = [tag(&format!("tag:{n}"))];
            assert_eq!(
                cache.store(&key(&format!("key:{n}")), n, &tags, &token),
                Stored::Kept
            );
            assert!(cache.tags() <= 1_024 + 100, "{kind}: {} records", cache.tags());
        }
        let held = (0..20_000).filter(|n| cache.get(&key(&format!("key:{n}"))).is_some());
        let held: Vec<_> = held.collect();
        assert!(!held.is_empty(), "{kind}");
        for n in held {
            world.change(Event::default().tag(tag(&format!("tag:{n}"))));
            assert_eq!(
                cache.get(&key(&format!("key:{n}"))),
                None,
                "{kind}: its record was kept"
            );
        }
        world.apply(u64::MAX, Event::default().prefix(prefix("tag:")), Origin::Feed);
        assert_eq!((cache.entries(), cache.tags()), (0, 0), "{kind}");
    }
}

/// The entry that was there is found by its tags as before, and the cache stays in use.
#[test]
fn an_insert_that_panics_loses_no_tag() {
    let world = World::new();
    let cache = world.attach(DashMap::<String, u64>::new());
    let (product, token) = (key("product:1"), world.position.token().unwrap());
    let kept = cache.store(&product, &[tag("old")], &token, |cache| {
        cache.insert("product:1".to_owned(), 1);
    });
    assert_eq!(kept, Stored::Kept);
    for (inserted, found_by) in [(false, "old"), (true, "new")] {
        let token = world.position.token().unwrap();
        let panics = || {
            cache.store(&product, &[tag("new")], &token, |cache| {
                if inserted {
                    cache.insert("product:1".to_owned(), 2);
                }
                panic!("on purpose");
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(cache.cache().contains_key("product:1"));
        world.change(Event::default().tag(tag(found_by)));
        assert!(!cache.cache().contains_key("product:1"), "by {found_by}");
        assert_eq!((cache.tagged(), cache.tags()), (0, 0));
    }
}

/// Why such caches are filled by the token only. Should this fail one day, the warnings may go.
#[test]
fn a_load_of_mokas_own_puts_back_what_it_read_before_the_event() {
    let world = World::new();
    for (touch, event) in every_touch() {
        let cache = moka::sync::Cache::<String, u8>::new(100);
        let attached = world.attach(cache.clone());
        let loaded = cache.get_with("product:1".to_owned(), || {
            world.change(event);
            1
        });
        assert_eq!(
            (loaded, attached.cache().get("product:1")),
            (1, Some(1)),
            "{touch}"
        );
    }
}
