use std::time::SystemTime;

use uuid::Uuid;

use super::*;
use crate::event::{Announced, Event, Prefix};
use crate::snapshot::Xid;

fn snapshot(text: &str) -> Arc<Snapshot> {
    Arc::new(text.parse().unwrap())
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn tag(text: &str) -> Tag {
    Tag::new(text).unwrap()
}

fn logged(xid: u64, event: Event) -> LoggedEvent {
    LoggedEvent {
        xid: Xid(xid),
        id: xid as i64,
        uuid: Uuid::from_u128(u128::from(xid)),
        version: 1,
        announced: Announced::Silent,
        created_at: SystemTime::UNIX_EPOCH,
        event,
    }
}

fn held() -> Held {
    let mut held = Held::new(Duration::from_nanos(100), 1_000);
    held.published(&snapshot("10:10:"), 0);
    held
}

#[test]
fn without_a_floor_everything_is_refused() {
    let held = Held::new(Duration::from_nanos(100), 10);
    assert!(held.overtaken(&snapshot("10:10:"), &key("k"), &[]));
}

#[test]
fn r_is_refused_iff_it_misses_a_matching_event() {
    let mut held = held();
    held.record(&logged(10, Event::default().key(key("k"))));
    held.record(&logged(11, Event::default().tag(tag("t"))));
    held.record(&logged(12, Event::default().prefix(Prefix::new("p:").unwrap())));
    let (before, between, after) = (snapshot("10:10:"), snapshot("10:13:11"), snapshot("13:13:"));
    for (k, tags, before_refused, between_refused) in [
        ("k", vec![], true, false),
        ("x", vec![tag("t")], true, true),
        ("p:1", vec![], true, false),
        ("x", vec![tag("p:9")], true, false),
        ("x", vec![tag("u")], false, false),
        ("p", vec![tag("k")], false, false),
    ] {
        assert_eq!(
            held.overtaken(&before, &key(k), &tags),
            before_refused,
            "{k} {tags:?}"
        );
        assert_eq!(
            held.overtaken(&between, &key(k), &tags),
            between_refused,
            "{k} {tags:?}"
        );
        assert!(!held.overtaken(&after, &key(k), &tags), "{k} {tags:?}");
    }
    held.record(&logged(13, Event::flush()));
    assert!(held.overtaken(&after, &key("x"), &[]));
    assert!(!held.overtaken(&snapshot("14:14:"), &key("k"), &[tag("t")]));
}

#[test]
fn an_event_of_an_unknown_version_touches_everything() {
    let mut held = held();
    let mut event = logged(10, Event::default().key(key("k")));
    event.version = 2;
    held.record(&event);
    assert!(held.overtaken(&snapshot("10:10:"), &key("other"), &[]));
}

#[test]
fn r_older_than_the_floor_is_refused() {
    let mut held = held();
    held.published(&snapshot("20:20:"), 50);
    assert!(held.rotate_if_due(100).is_some());
    assert!(
        !held.overtaken(&snapshot("10:10:"), &key("k"), &[]),
        "floor is still the start"
    );
    held.published(&snapshot("30:30:"), 150);
    assert!(held.rotate_if_due(200).is_some());
    assert!(held.overtaken(&snapshot("10:10:"), &key("k"), &[]));
    assert!(!held.overtaken(&snapshot("20:20:"), &key("k"), &[]));
}

#[test]
fn events_ahead_of_the_cursor_survive_every_rotation() {
    let mut held = held();
    // Applied right after its commit; the feed is stuck and its cursor does not see it.
    held.record(&logged(
        15,
        Event::default()
            .key(key("own"))
            .tag(tag("t"))
            .prefix(Prefix::new("p").unwrap()),
    ));
    for now in 1..10 {
        held.published(&snapshot(&format!("15:{}:15", 20 + now)), now * 100);
        assert!(held.rotate_if_due(now * 100).is_some());
    }
    let r = snapshot("15:40:15");
    assert!(held.overtaken(&r, &key("own"), &[]));
    assert!(held.overtaken(&r, &key("x"), &[tag("t")]));
    assert!(held.overtaken(&r, &key("px"), &[]));
    assert!(!held.overtaken(&r, &key("x"), &[]));
    for now in 10..13 {
        held.published(&snapshot("60:60:"), now * 100);
        held.rotate_if_due(now * 100);
    }
    assert_eq!(
        held.old.texts + held.young.texts,
        0,
        "forgotten once the floor sees it"
    );
    assert!(
        held.touched(&key("own"), &[], 0, 1),
        "its number is gone, so: maybe"
    );
    assert!(!held.touched(&key("own"), &[], 1, 1));
}

#[test]
fn memory_is_bounded_while_the_cursor_stands_still() {
    let mut held = held();
    for n in 0..20_000_u64 {
        held.record(&logged(10 + n / 100, Event::default().key(key(&format!("k{n}")))));
        held.rotate_if_due(1);
    }
    assert!(held.old.texts + held.young.texts <= 3_000);
    let r = snapshot("10:10:");
    assert!((0..20_000).all(|n| held.overtaken(&r, &key(&format!("k{n}")), &[])));
    assert!(!held.overtaken(&snapshot("900:900:"), &key("k1"), &[]));
}

#[test]
fn numbers_tell_what_was_recorded_while_a_load_ran() {
    let mut held = held();
    held.record(&logged(10, Event::default().key(key("k"))));
    held.record(&logged(11, Event::default().prefix(Prefix::new("k").unwrap())));
    held.record(&logged(12, Event::default().tag(tag("t"))));
    assert!(held.touched(&key("k"), &[], 0, 1));
    assert!(held.touched(&key("k"), &[], 1, 2));
    assert!(!held.touched(&key("k"), &[], 2, 3));
    assert!(held.touched(&key("k"), &[tag("t")], 2, 3));
    assert!(!held.touched(&key("k"), &[tag("t")], 3, 3));
}
