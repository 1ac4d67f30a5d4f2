use super::*;
use proptest::prelude::*;

fn snapshot(text: &str) -> Snapshot {
    text.parse().unwrap()
}

/// Every well-formed snapshot with ids up to `top`.
fn all_small(top: u64) -> Vec<Snapshot> {
    let mut all = Vec::new();
    for xmin in 1..=top {
        for xmax in xmin..=top {
            for mask in 0..1_u64 << (xmax - xmin) {
                let open = (xmin..xmax)
                    .filter(|xid| mask & (1 << (xid - xmin)) != 0)
                    .map(Xid);
                all.push(Snapshot::new(Xid(xmin), Xid(xmax), open.collect::<Box<[_]>>()).unwrap());
            }
        }
    }
    all
}

pub(super) fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    (
        1..u64::MAX / 2,
        prop::collection::btree_set(0..5_000_u64, 0..60),
        0..200_u64,
    )
        .prop_map(|(xmin, open, beyond)| {
            let xmax = xmin + open.last().map_or(0, |last| last + 1) + beyond;
            let open: Vec<Xid> = open.into_iter().map(|offset| Xid(xmin + offset)).collect();
            Snapshot::new(Xid(xmin), Xid(xmax), open).unwrap()
        })
}

#[test]
fn covers_is_sees_all_that_the_other_sees() {
    assert!(snapshot("5:10:5,7").covers(&snapshot("5:8:5,7")));
    assert!(!snapshot("5:10:5,7").covers(&snapshot("6:8:7")));
    assert!(snapshot("5:8:").covers(&snapshot("5:10:8,9")));
    assert!(!snapshot("5:8:").covers(&snapshot("5:10:9")));
    assert!(!snapshot("5:8:").covers(&snapshot("20:20:")));
}

#[test]
fn covers_agrees_with_the_definition_for_all_small_snapshots() {
    let all = all_small(7);
    for one in &all {
        for other in &all {
            let brute = (0..10).map(Xid).all(|xid| one.sees(xid) || !other.sees(xid));
            assert_eq!(one.covers(other), brute, "{one} covers {other}");
        }
    }
}

#[test]
fn sees_agrees_with_the_text_form() {
    for one in all_small(6) {
        for xid in (0..9).map(Xid) {
            let open = xid >= one.xmax() || one.in_progress().contains(&xid);
            assert_eq!(one.sees(xid), !open, "{one} sees {xid}");
        }
    }
}

/// When one snapshot covers another, whatever the other sees, it sees; covering is an order.
#[test]
fn covers_is_an_order() {
    let all = all_small(5);
    for a in &all {
        assert!(a.covers(a));
        for b in all.iter().filter(|b| a.covers(b)) {
            for c in all.iter().filter(|c| b.covers(c)) {
                assert!(a.covers(c), "{a}, {b}, {c}");
            }
        }
    }
}

#[test]
fn malformed_text_is_refused() {
    for text in [
        "",
        ":",
        "::",
        "5",
        "5:8",
        "5::",
        ":8:",
        "a:8:",
        "5:b:",
        "5:8:c",
        "5:8:,",
        "5:8:5,",
        "5:8:,5",
        "5:8:5,,6",
        "5:8:6:7",
        "0:8:",
        "8:5:",
        "5:8:4",
        "5:8:8",
        "5:8:6,5",
        "5:8:6,6",
        "-5:8:",
        "+5:8:",
        "5:+8:",
        "5:8:+6",
        " 5:8:",
        "5:8: 6",
        "5:8:\n",
        "5:18446744073709551616:",
        "\u{665}:8:",
        "5.0:8:",
    ] {
        let error = text.parse::<Snapshot>().unwrap_err();
        assert!(error.is_invalid(), "{text:?}");
    }
    let error = "x".repeat(1 << 20).parse::<Snapshot>().unwrap_err();
    assert!(error.to_string().len() < 200);
}

#[test]
fn the_largest_ids_are_handled() {
    let text = format!("1:{}:{}", u64::MAX, u64::MAX - 1);
    assert_eq!(snapshot(&text).to_string(), text);
    assert!(!snapshot(&text).sees(Xid(u64::MAX)));
    assert!(snapshot(&text).covers(&snapshot("1:1:")));
}

#[test]
fn a_stored_page_must_lie_between_base_and_target() {
    let after = (Xid(5), 1);
    assert!(Cursor::between_pages(snapshot("5:8:5"), snapshot("9:9:"), after).is_ok());
    let error = Cursor::between_pages(snapshot("9:9:"), snapshot("5:8:5"), after).unwrap_err();
    assert!(error.is_invalid());
}

#[test]
fn pages_grow_while_they_come_full() {
    let mut size = PageSize::default();
    let mut asked = vec![size.get()];
    for _ in 0..5 {
        assert!(size.learn(size.get() as usize));
        asked.push(size.get());
    }
    assert_eq!(asked, [500, 1000, 2000, 4000, 5000, 5000]);
    assert!(!size.learn(4_999));
    assert_eq!(size.get(), 500);
    assert!(!size.learn(0));
    assert_eq!(size.get(), 500);
    assert_eq!(PageSize::new(0, 0).get(), 1);
    let mut largest = PageSize::new(u32::MAX, 1);
    assert!(largest.learn(u32::MAX as usize));
    assert_eq!(largest.get(), u32::MAX);
}

proptest! {
    #[test]
    fn text_goes_round(one in any_snapshot()) {
        prop_assert_eq!(&one.to_string().parse::<Snapshot>().unwrap(), &one);
    }

    #[test]
    fn any_text_parses_to_what_prints_alike_or_is_refused(text in "[0-9:,]{0,30}|.{0,20}") {
        if let Ok(one) = text.parse::<Snapshot>() {
            prop_assert_eq!(one.to_string().parse::<Snapshot>().unwrap(), one);
        }
    }

    #[test]
    fn wire_goes_round(one in any_snapshot(), cut in any::<prop::sample::Index>()) {
        use bytes::BytesMut;
        use tokio_postgres::types::{FromSql, ToSql, Type};
        let mut raw = BytesMut::new();
        one.to_sql(&Type::PG_SNAPSHOT, &mut raw).unwrap();
        prop_assert_eq!(&Snapshot::from_sql(&Type::PG_SNAPSHOT, &raw).unwrap(), &one);
        prop_assert!(Snapshot::from_sql(&Type::PG_SNAPSHOT, &raw[..cut.index(raw.len())]).is_err());
    }
}
