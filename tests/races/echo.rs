//! Events that come twice, early or late: they must not evict what is newer, nor be forgotten too soon.

use std::time::Duration;

use pgevict::cache::{Lookup, Stored};
use pgevict::config::Config;
use pgevict::event::Event;
use pgevict::sink::Origin;

use crate::world::{World, every_touch, key, prefix, snapshot, tag};

#[test]
fn the_echo_of_an_own_event_cannot_evict_what_was_read_after_it() {
    for (what, event) in every_touch() {
        if event.flush {
            continue;
        }
        let world = World::new();
        let cache = world.cache::<u32>();
        let (k, tags) = (key("product:1"), [tag("category:7")]);
        let before = cache.token().unwrap();
        assert_eq!(cache.store(&k, Some(1), &tags, &before), Stored::Kept);
        world.apply(100, event.clone(), Origin::Own);
        assert!(cache.get(&k).is_miss(), "{what}: applied at once");
        assert_eq!(
            cache.store(&k, Some(1), &tags, &before),
            Stored::Refused,
            "{what}"
        );

        world.apply(100, event.clone(), Origin::Feed);
        world.publish("101:101:");
        let after = cache.token().unwrap();
        assert_eq!(cache.store(&k, Some(2), &tags, &after), Stored::Kept, "{what}");
        world.apply(100, event, Origin::Feed);
        assert!(cache.get(&k).is_hit(), "{what}: a repeat evicted the newer value");
    }
}

/// Hazelcast #10913: a new cache took a wrong base line and dropped everything it had.
#[test]
fn what_a_new_cache_holds_survives_the_first_reconcile() {
    let world = World::new();
    world.publish("500000:500000:");
    let cache = world.cache::<u32>();
    let token = cache.token().unwrap();
    for n in 0..1_000 {
        let stored = cache.store(&key(&format!("k{n}")), Some(n), &[tag("t")], &token);
        assert_eq!(stored, Stored::Kept);
    }
    // A repeat of old events changes nothing either.
    for xid in 100..200 {
        world.apply(
            xid,
            Event::default().tag(tag("t")).prefix(prefix("k")),
            Origin::Feed,
        );
    }
    world.publish("500000:500001:500000");
    assert_eq!(
        (0..1_000)
            .filter(|n| cache.get(&key(&format!("k{n}"))).is_hit())
            .count(),
        1_000
    );
    assert_eq!(cache.stats().evicted, 0);
}

#[test]
fn a_token_older_than_the_memory_is_refused() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let old = cache.token().unwrap();
    for head in 101..=103 {
        assert_eq!(
            cache.store(&key("k"), Some(1), &[], &old),
            Stored::Kept,
            "held until {head}"
        );
        world.hands.advance(Duration::from_secs(61));
        world.publish(&format!("{head}:{head}:"));
        if head == 102 {
            break;
        }
    }
    assert_eq!(cache.store(&key("k"), Some(1), &[], &old), Stored::Refused);
    assert_eq!(
        cache.store(&key("k"), Some(1), &[], &cache.token().unwrap()),
        Stored::Kept
    );
}

/// The first page of a catch-up has been applied, the cursor not yet published, when a cache is built. What was
/// read on a replica that lags behind the page must not enter it: the event will not come again.
#[test]
fn a_cache_built_in_the_middle_of_a_catch_up_knows_the_pages_before_it() {
    let world = World::new();
    let mark = snapshot("100:100:");
    world.apply(150, Event::default().key(key("k")), Origin::Feed);
    let cache = world.cache::<u32>();
    let token = cache.token().unwrap().read_at(mark);
    assert_eq!(cache.store(&key("k"), Some(1), &[], &token), Stored::Refused);
    world.publish("200:200:");
    assert_eq!(cache.get(&key("k")), Lookup::Miss);
    assert_eq!(cache.store(&key("k"), Some(1), &[], &token), Stored::Refused);
}

#[test]
fn an_own_event_is_remembered_while_the_feed_is_stuck() {
    let world = World::new();
    let cache = world.cache::<u32>();
    world.apply(150, Event::default().key(key("own")), Origin::Own);
    for n in 0..10 {
        world.hands.advance(Duration::from_secs(61));
        world.publish(&format!("150:{}:150", 160 + n));
    }
    assert_eq!(
        cache.store(&key("own"), Some(1), &[], &cache.token().unwrap()),
        Stored::Refused
    );
    assert_eq!(
        cache.store(&key("other"), Some(1), &[], &cache.token().unwrap()),
        Stored::Kept
    );
}

#[test]
fn before_the_first_cursor_nothing_is_stored_and_after_it_everything_known_counts() {
    let world = World::unstarted(Config::default());
    let cache = world.cache::<u32>();
    assert!(cache.token().is_none());
    world.apply(150, Event::default().key(key("k")), Origin::Own);
    world.publish("120:120:");
    let token = cache.token().unwrap();
    assert_eq!(cache.store(&key("k"), Some(1), &[], &token), Stored::Refused);
    assert_eq!(cache.store(&key("other"), Some(1), &[], &token), Stored::Kept);
}
