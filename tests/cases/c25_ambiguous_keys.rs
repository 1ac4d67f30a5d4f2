//! Keys that were not unique: separators inside of values, NULL as an empty text, one part of a composite key only,
//! texts that depended on the session (electric 3026 to 3028, pgstream 783).

use pgevict::{Key, key};

use crate::support::World;
use crate::support::app::{App, PATIENCE, slow_poll};

/// Settings under which PostgreSQL prints and reads values otherwise.
const ODD: &str = "set timezone = 'Asia/Kolkata'; set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'; \
    set extra_float_digits = -15; set bytea_output = 'escape'";

/// Loads every key, so that the cache holds it.
async fn fill(app: &App, keys: &[Key]) {
    for key in keys {
        let load = app.cache.get_or_load(key, |load| async move {
            Ok::<_, tokio_postgres::Error>(load.found("v".to_owned()))
        });
        load.await.unwrap();
    }
    assert_eq!(app.cache.len(), keys.len(), "no two of them are alike: {keys:?}");
}

/// Runs the statement in the session; the keys that left the cache by it.
async fn gone(world: &World, app: &mut App, keys: &[Key], sql: &str) -> Vec<Key> {
    fill(app, keys).await;
    world.run(sql).await;
    world.run("select pgevict.emit(array['mark'])").await;
    app.event_for("mark", PATIENCE).await;
    let held = |key: &&Key| app.cache.get(key).is_miss();
    keys.iter().filter(held).cloned().collect()
}

#[tokio::test]
async fn c25_only_the_updated_row_leaves_the_cache() {
    let world = World::start().await;
    world
        .run(
            "create table pairs (a text, b text, x int default 0, primary key (a, b)); \
              create table parts (a text, b text, x int default 0, unique (a, b)); \
              select pgevict.watch('pairs', 'pairs:{a}:{b}'); select pgevict.watch('parts', 'parts:{a}:{b}')",
        )
        .await;
    let mut app = App::start(&world, "a", slow_poll).await;
    app.until_proved(PATIENCE).await;
    let rows = [
        (Some("x|y"), Some("z")),
        (Some("x"), Some("y|z")),
        (Some("x:y"), Some("z")),
        (Some("x"), Some("y:z")),
        (Some("x%3Ay"), Some("z")),
        (Some(""), Some("")),
        (Some(""), Some(":")),
        (Some(":"), Some("")),
        (Some("1"), Some("23")),
        (Some("12"), Some("3")),
        (Some("A"), Some("b")),
        (Some("a"), Some("B")),
        (Some("a "), Some("b")),
        (Some("%N"), Some("b")),
        (Some("NULL"), Some("b")),
        (None, Some("b")),
        (Some(""), Some("b")),
        (Some("b"), None),
        (None, None),
    ];
    let mut keys = Vec::new();
    let mut updates = Vec::new();
    for (a, b) in rows {
        let insert = "insert into parts values ($1, $2)";
        world.admin.execute(insert, &[&a, &b]).await.unwrap();
        keys.push(key!("parts:{}:{}", a, b));
        updates.push(update("parts", a, b));
        if a.is_some() && b.is_some() {
            let insert = "insert into pairs values ($1, $2)";
            world.admin.execute(insert, &[&a, &b]).await.unwrap();
            // The same values in another table.
            keys.push(key!("pairs:{}:{}", a, b));
            updates.push(update("pairs", a, b));
        }
    }
    app.deliveries().await;
    for (key, sql) in keys.iter().zip(&updates) {
        assert_eq!(
            gone(&world, &mut app, &keys, sql).await,
            std::slice::from_ref(key),
            "{sql}"
        );
    }
    // Both parts of a key count, also when one moves: the old and the new row go, and nothing else.
    let sql = "update pairs set b = '3', a = '1' where a = '12'";
    let expected = [key!("pairs:{}:{}", "12", "3"), key!("pairs:{}:{}", "1", "3")];
    keys.push(expected[1].clone());
    assert_eq!(gone(&world, &mut app, &keys, sql).await, expected);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn c25_a_key_is_the_same_whatever_the_session_is_set_to() {
    let world = World::start().await;
    let id = uuid::Uuid::from_u128(0xA0EE_BC99_9C0B_4EF8_BB6D_6BB9_BD38_0A11);
    // Type, value as one writer spells it and as another one does, key as an app writes it.
    let cases = [
        (
            "uuid",
            format!("'{id}'"),
            format!("'{{{}}}'", id.to_string().to_uppercase()),
            key!("k:{}", id),
        ),
        ("numeric", "1.0".into(), "1.00".into(), key!("k:{}", 1)),
        ("numeric", "-0.0".into(), "0".into(), key!("k:{}", 0)),
        ("float8", "'-0'".into(), "0".into(), key!("k:{}", 0)),
        ("float8", "0.1".into(), "0.10".into(), key!("k:{}", "0.1")),
        ("char(5)", "'ab'".into(), "'ab   '".into(), key!("k:{}", "ab")),
        (
            "interval",
            "'24:00'".into(),
            "'1 day'".into(),
            key!("k:{}", "P1D"),
        ),
        (
            "bytea",
            "'\\x00ff'".into(),
            "decode('00FF', 'hex')".into(),
            key!("k:{}", [0_u8, 255].as_slice()),
        ),
        (
            "date",
            "'2026-11-30'".into(),
            "'20261130'".into(),
            key!("k:{}", "2026-11-30"),
        ),
        (
            "inet",
            "'10.0.0.1'".into(),
            "'10.0.0.1/32'".into(),
            key!("k:{}", "10.0.0.1/32"),
        ),
        ("bool", "true".into(), "'on'".into(), key!("k:{}", true)),
        (
            "timestamptz",
            "'2026-11-30T10:00:00Z'".into(),
            "'2026-11-30 15:30:00+05:30'".into(),
            key!("k:{}", "2026-11-30T10:00:00Z"),
        ),
        (
            "timestamptz",
            "'2026-10-25T00:30:00Z'".into(),
            "'2026-10-25 02:30:00 Europe/Berlin'::timestamptz - interval '1 hour'".into(),
            key!("k:{}", "2026-10-25T00:30:00Z"),
        ),
    ];
    for (kind, one, other, expected) in cases {
        world
            .run(&format!("reset all; create table t (id {kind} primary key, x int); select pgevict.watch('t', 'k:{{id}}')"))
            .await;
        world.events().await;
        world.run(&format!("insert into t values ({one}, 0)")).await;
        assert_eq!(world.event().await.keys, [expected.as_str()], "{kind} {one}");
        for settings in ["reset all", ODD] {
            world.run(settings).await;
            // Found by either spelling, since both are one value.
            for value in [&one, &other] {
                world
                    .run(&format!("update t set x = x + 1 where id = {value}"))
                    .await;
                assert_eq!(
                    world.event().await.keys,
                    [expected.as_str()],
                    "{kind} {value} {settings}"
                );
                // The row itself takes on the other spelling: one key still.
                world.run(&format!("update t set id = {value}, x = x + 1")).await;
                assert_eq!(
                    world.event().await.keys,
                    [expected.as_str()],
                    "{kind} {value} {settings}"
                );
            }
            world
                .run("select pgevict.emit(array['k:' || pgevict.key(id)]) from t")
                .await;
            assert_eq!(world.event().await.keys, [expected.as_str()], "{kind} {settings}");
        }
        world.run("drop table t").await;
    }
}

fn update(table: &str, a: Option<&str>, b: Option<&str>) -> String {
    let is = |column: &str, value: Option<&str>| match value {
        Some(value) => format!("{column} = '{value}'"),
        None => format!("{column} is null"),
    };
    format!(
        "update {table} set x = x + 1 where {} and {}",
        is("a", a),
        is("b", b)
    )
}
