//! Key text is the same in SQL as in Rust. Both are held to one golden file: SQL here, Rust beside `key!`.

use pgevict::key;

use crate::support::{World, refusal};

/// The types of the golden file that a database does not have by itself.
const TYPES: &str = "create type public.mood as enum ('so so', 'it''s'); create domain public.own_mood as public.mood; \
    create domain public.price as numeric(10, 4); create type public.pair as (a int, b text)";

/// Type, literal and key text of each line.
fn golden() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let golden = include_str!("../golden/key_text.tsv");
    golden.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let [kind, value, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three fields: {line:?}");
        };
        (kind, value, expected)
    })
}

/// SQL for the value that this key text stands for.
fn back(kind: &str, text: &str) -> String {
    if text == "%N" {
        return format!("null::{kind}");
    }
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            plain => plain,
        });
    }
    let value = String::from_utf8(bytes).unwrap().replace('\'', "''");
    let prefix = if kind == "bytea" { "\\x" } else { "" };
    format!("'{prefix}{value}'::{kind}")
}

#[tokio::test]
async fn sql_and_rust_write_any_text_alike() {
    let world = World::start().await;
    let mut random = fastrand::Rng::with_seed(7);
    for length in 0..300 {
        let text: String = (0..length)
            .map(|_| match random.u8(0..4) {
                0 => random.alphanumeric(),
                1 => random.char('\u{1}'..='\u{ff}'),
                2 => *random
                    .choice(['%', '2', '5', 'N', '\\', '\'', '~', '\u{301}'].iter())
                    .unwrap(),
                _ => random.char('\u{1}'..=char::MAX),
            })
            .collect();
        let row = world
            .admin
            .query_one("select pgevict.key($1::text)", &[&text])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), key!("{}", text).as_str(), "{text:?}");
    }
}

#[tokio::test]
async fn key_text_is_as_the_golden_file_says_under_any_setting() {
    let world = World::start().await;
    world.run(TYPES).await;
    for settings in [
        "select 1",
        "set timezone = 'Asia/Kolkata'; set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'; \
         set extra_float_digits = -15; set bytea_output = 'escape'; set standard_conforming_strings = off; \
         set search_path = ''; set array_nulls = off; set client_encoding = 'UTF8'; set plpgsql.extra_errors = 'all'",
    ] {
        world.run(settings).await;
        // What literals of the file mean is not what is tested.
        world
            .run("set standard_conforming_strings = on; set array_nulls = on")
            .await;
        for (kind, value, expected) in golden() {
            let value = format!("({value})::{kind}");
            assert_eq!(
                world.text(&format!("select pgevict.key({value})")).await,
                expected,
                "{value}"
            );
            // The text tells the value: no two that differ share it.
            let back = back(kind, expected);
            let again = format!("select pgevict.key({back})");
            assert_eq!(world.text(&again).await, expected, "{again}");
            // No `=`: json has none, and the one of enums does not take a domain.
            if !["json", "public.own_mood"].contains(&kind) {
                let same = format!("select {value} is not distinct from {back}");
                assert_eq!(world.text(&same).await, "t", "{same}");
            }
        }
        // Types that one side only can write.
        for (value, expected) in [
            (
                "timestamptz '2026-11-30 12:00:00.5+02'",
                "2026-11-30T10%3A00%3A00.5Z",
            ),
            ("timestamptz 'infinity'", "infinity"),
            ("timestamp '2026-11-30 12:00:00'", "2026-11-30T12%3A00%3A00"),
            ("date '2026-11-30'", "2026-11-30"),
            ("1e20::float8", "1e%2B20"),
            (
                "'{\"a\": \"\\u0000\"}'::json",
                "%7B%22a%22%3A%20%22%5Cu0000%22%7D",
            ),
            ("1234.50::money", "%241%2C234.50"),
            ("row(1, 'a b')", "%281%2C%22a%20b%22%29"),
            ("array[1.50, null]", "%7B1.50%2CNULL%7D"),
        ] {
            assert_eq!(
                world.text(&format!("select pgevict.key({value})")).await,
                expected,
                "{value}"
            );
        }
    }
    // Every character, one by one and many at once, the same by both ways of escaping.
    assert_eq!(
        world.text("select count(*) from generate_series(1, 300) n, chr(n) c where pgevict.escape(c) <> \
            case when c ~ '^[A-Za-z0-9._~-]$' then c else \
            (select string_agg('%' || upper(lpad(to_hex(get_byte(convert_to(c, 'UTF8'), i)), 2, '0')), '' order by i) \
             from generate_series(0, octet_length(c) - 1) i) end").await,
        "0"
    );
    assert_eq!(
        world.text("select pgevict.escape(string_agg(c, '' order by n)) = string_agg(pgevict.escape(c), '' order by n) \
            from generate_series(1, 3000) n, chr(n) c").await,
        "t"
    );
    assert_eq!(
        world.text("select pgevict.key('line:{}:{}', 7, 42)").await,
        "line:7:42"
    );
    assert_eq!(
        world
            .text("select pgevict.key('a:{}/{}', 'x y'::text, null)")
            .await,
        "a:x%20y/%N"
    );
    assert_eq!(
        refusal(&world.admin, "select pgevict.key('a:{}', 1, 2)").await.0,
        "22023"
    );
}

#[tokio::test]
async fn a_watch_writes_what_the_golden_file_says() {
    let world = World::start().await;
    world.run(TYPES).await;
    let mut kinds: Vec<_> = golden().map(|(kind, ..)| kind).collect();
    kinds.dedup();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        world
            .run(&format!(
                "drop table if exists t; create table t (v {kind}); select pgevict.watch('t', 'k:{{v}}')"
            ))
            .await;
        world.events().await;
        let mut keys = Vec::new();
        for (_, value, expected) in golden().filter(|line| line.0 == kind) {
            let key = format!("k:{expected}");
            world
                .run(&format!("insert into t values (({value})::{kind})"))
                .await;
            assert_eq!(world.event().await.keys, [key.as_str()], "{kind} {value}");
            keys.push(key);
        }
        // Many rows take another way.
        keys.sort_unstable();
        keys.dedup();
        world
            .run("insert into t select * from t union all select * from t")
            .await;
        assert_eq!(world.event().await.keys, keys, "{kind}");
    }
}

/// Whatever can be a primary key has its line: a type of a later server must not go unnoticed.
#[tokio::test]
async fn every_type_that_can_be_a_key_has_a_line() {
    let world = World::start().await;
    world.run(TYPES).await;
    let kinds: Vec<_> = golden()
        .map(|(kind, ..)| format!("'{}'::regtype", kind.replace('\'', "''")))
        .collect();
    let missing = format!(
        "select coalesce(string_agg(t.oid::regtype::text, ', '), 'none') from pg_opclass c join pg_am a on a.oid = c.opcmethod \
           join pg_type t on t.oid = c.opcintype \
         where a.amname = 'btree' and c.opcdefault and t.typtype <> 'p' and t.oid <> all (array[{}])",
        kinds.join(", ")
    );
    assert_eq!(world.text(&missing).await, "none");
}

#[tokio::test]
async fn types_whose_equal_values_have_several_texts_are_refused() {
    let world = World::start().await;
    world
        .run("create domain many as numeric[]; create type inner_type as (a int, n numeric); \
              create type deep as (a int, i inner_type[]); create type span as range (subtype = interval); \
              create table t (id int primary key, nu numeric[], m many, i interval[], f float4[], r numrange, mr nummultirange, \
                d deep, s span, c regclass, rt regtype[], fine int4range, good text[], co numeric, iv interval)")
        .await;
    for (column, words) in [
        ("nu", "numeric[] (numeric inside)"),
        ("m", "many (numeric inside)"),
        ("i", "interval[] (interval inside)"),
        ("f", "real[] (real inside)"),
        ("r", "numrange (numeric inside)"),
        ("mr", "nummultirange (numeric inside)"),
        ("d", "deep (numeric inside)"),
        ("s", "span (interval inside)"),
        ("c", "of type regclass, "),
        ("rt", "regtype[] (regtype inside)"),
    ] {
        let (code, message) = refusal(
            &world.admin,
            &format!("select pgevict.watch('t', 't:{{{column}}}')"),
        )
        .await;
        assert_eq!(code, "0A000", "{column}");
        assert!(
            message.contains(words) && message.contains("different texts are equal"),
            "{column}: {message}"
        );
    }
    world
        .run("select pgevict.watch('t', 't:{id}', array['{table}:{fine}:{good}:{co}:{iv}'])")
        .await;
}
