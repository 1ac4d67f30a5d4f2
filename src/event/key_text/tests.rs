use super::*;
use proptest::prelude::*;

fn text(value: impl KeyValue) -> String {
    key!("{}", value).to_string()
}

/// The reverse of [`ValueText::push`]: `None` for NULL.
fn unescape(text: &str) -> Option<String> {
    if text == "%N" {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&tail[..2]).unwrap(), 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn values_have_one_text() {
    assert_eq!(text(-7_i8), "-7");
    assert_eq!(text(i64::MIN), "-9223372036854775808");
    assert_eq!(text(u64::MAX), "18446744073709551615");
    assert_eq!((text(true), text(false)), ("true".into(), "false".into()));
    assert_eq!(text('é'), "%C3%A9");
    assert_eq!(text("a-b.c_d~e"), "a-b.c_d~e");
    assert_eq!(text(String::from("%N")), "%25N");
    assert_eq!(text("\0\u{1F600} \n"), "%00%F0%9F%98%80%20%0A");
    assert_eq!(text(Arc::<str>::from("a/b")), "a%2Fb");
    assert_eq!(text(None::<i64>), "%N");
    assert_eq!(text(Some(Some("x"))), "x");
    assert_eq!(text(""), "");
    assert_eq!(
        text(Uuid::from_u128(0xABCD)),
        "00000000-0000-0000-0000-00000000abcd"
    );
    assert_eq!(text([0_u8, 0xAB].as_slice()), "00ab");
    assert_eq!(text(vec![0xFF_u8]), "ff");
    assert_eq!(text(*b"\x01"), "01");
    assert_eq!(text(Box::<str>::from("5")), "5");
}

#[test]
fn templates_fill_in_order_or_by_name() {
    let (id, lang) = (7, "de:at");
    assert_eq!(key!("static").as_str(), "static");
    assert_eq!(key!("a:{}:b:{}", id, lang,).as_str(), "a:7:b:de%3Aat");
    assert_eq!(tag!("{lang}/{id}/{lang}", id, lang).as_str(), "de%3Aat/7/de%3Aat");
    assert_eq!(prefix!("x:{id}:", id = id * 2).as_str(), "x:14:");
    assert_eq!(key!("ü:{}", id == 7).as_str(), "ü:true");
}

#[test]
fn values_are_borrowed_not_moved() {
    let name = String::from("x");
    let _ = key!("a:{}", name);
    let _ = key!("a:{name}", name);
    assert_eq!(name, "x");
}

#[test]
fn templates_that_do_not_fit_are_refused() {
    let refused = |template: &'static str, names: &'static [&'static str]| {
        std::panic::catch_unwind(|| check_template(template, names)).is_err()
    };
    for (template, names) in [
        ("a:{}", &[] as &[&str]),
        ("a", &["id"]),
        ("a:{id}", &["other"]),
        ("a:{id}", &[]),
        ("a:{id}:{}", &["id", "id"]),
        ("a:{id}", &["id", "unused"]),
        ("a:{id", &["id"]),
        ("a:id}", &["id"]),
        ("a:{{id}}", &["id"]),
        ("a:{", &["id"]),
        ("a:{}{}", &["x", "y"]),
        ("a:{}-{}", &["x", "y"]),
        ("a:{}%{}", &["x", "y"]),
        ("a\0:{}", &["x"]),
        ("a:{i}", &["id"]),
        ("a:{idx}", &["id"]),
    ] {
        assert!(refused(template, names), "{template:?} with {names:?}");
    }
    assert!(!refused("{}é{}", &["x", "y"]));
    assert!(!refused("{x}:{y}:{x}", &["y", "x"]));
}

#[test]
fn a_key_over_the_limit_is_refused_when_emitted() {
    use crate::event::{Event, MAX_TEXT_BYTES};
    let key = key!("a:{}", "x".repeat(MAX_TEXT_BYTES));
    let error = Event::new("t").key(key).check().unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().starts_with("key of 1048578 bytes"),
        "{error}"
    );
    assert!(Event::new("t").key(key!("a")).tag(tag!("b")).check().is_ok());
    assert!(
        Event::new("t")
            .prefix(prefix!(""))
            .check()
            .unwrap_err()
            .to_string()
            .contains("flush")
    );
}

/// One line per value: SQL type, SQL literal, text. The server's side is held to the same file.
#[test]
fn the_golden_file_holds() {
    let golden = include_str!("../../../tests/golden/key_text.tsv");
    let mut checked = 0;
    for line in golden
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let [sql_type, literal, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}");
        };
        let plain = unquote(literal);
        let plain = plain.as_deref();
        let text = match sql_type {
            "smallint" => text(plain.map(|v| v.parse::<i16>().unwrap())),
            "integer" => text(plain.map(|v| v.parse::<i32>().unwrap())),
            "bigint" => text(plain.map(|v| v.parse::<i64>().unwrap())),
            "boolean" => text(plain.map(|v| v.parse::<bool>().unwrap())),
            "text" | "varchar" => text(plain),
            "uuid" => text(plain.map(|v| v.parse::<Uuid>().unwrap())),
            "bytea" => text(plain.map(|v| {
                let hex = v.strip_prefix("\\x").unwrap();
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                (0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>()
            })),
            // Types that have no value of their own in Rust: the server's test checks them.
            _ => continue,
        };
        assert_eq!(text, expected, "{line}");
        checked += 1;
    }
    assert!(checked >= 30, "{checked} lines checked");
}

/// The value of `null`, `42`, `'it''s'` or `E'\n'`.
fn unquote(literal: &str) -> Option<String> {
    if literal == "null" {
        return None;
    }
    let (escapes, literal) = match literal.strip_prefix('E') {
        Some(rest) => (true, rest),
        None => (false, literal),
    };
    let Some(inner) = literal
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
    else {
        return Some(literal.to_owned());
    };
    let inner = inner.replace("''", "'");
    Some(match escapes {
        true => inner
            .replace("\\n", "\n")
            .replace("\\t", "\t")
            .replace("\\r", "\r")
            .replace("\\\\", "\\"),
        false => inner,
    })
}

proptest! {
    #[test]
    fn different_values_give_different_keys(
        one in prop::collection::vec(prop::option::of(".{0,4}|[%N:]{0,4}"), 2),
        other in prop::collection::vec(prop::option::of(".{0,4}|[%N:]{0,4}"), 2),
    ) {
        let render = |values: &[Option<String>]| key!("a:{}:{}", values[0], values[1]);
        prop_assert_eq!(render(&one) == render(&other), one == other);
    }

    #[test]
    fn escaping_can_be_undone(value in prop::option::of(any::<String>())) {
        let text = text(&value);
        prop_assert!(text.bytes().all(|byte| is_plain(byte) || byte == b'%'));
        prop_assert_eq!(unescape(&text), value);
    }
}
