//! `watch(..., changes => true)`: an event for each row, which says who it was and what changed in it (reference row A1).

use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, WatchState, Watched, unwatch, watch, watches};
use pgevict::{Delivery, Event};
use serde_json::{Value, json};

use crate::support::World;
use crate::support::app::App;

/// An event of one row, as the log holds it.
#[derive(Debug, PartialEq)]
struct Told {
    kind: String,
    id: Option<String>,
    keys: Vec<String>,
    tags: Vec<String>,
    prefixes: Vec<String>,
    flush: bool,
    changes: Option<Value>,
}

/// The events since the last call, in order.
async fn told(world: &World) -> Vec<Told> {
    let rows = world
        .admin
        .query(
            "with gone as (delete from pgevict.event returning *) select type, entity_id, keys, tags, prefixes, flush, \
             changes from gone order by id",
            &[],
        )
        .await
        .unwrap();
    rows.iter()
        .map(|row| Told {
            kind: row.get(0),
            id: row.get(1),
            keys: row.get(2),
            tags: row.get(3),
            prefixes: row.get(4),
            flush: row.get(5),
            changes: row.get(6),
        })
        .collect()
}

/// What one statement told, as (type, id, changes).
async fn after(world: &World, sql: &str) -> Vec<(String, Option<String>, Value)> {
    world.run(sql).await;
    told(world)
        .await
        .into_iter()
        .map(|event| (event.kind, event.id, event.changes.unwrap_or(json!("none"))))
        .collect()
}

fn is(kind: &str, id: &str, changes: Value) -> (String, Option<String>, Value) {
    (kind.to_owned(), Some(id.to_owned()), changes)
}

async fn watched(sql: &str) -> World {
    let world = World::start().await;
    world.run(sql).await;
    world.events().await;
    world
}

#[tokio::test]
async fn a1_a_watch_tells_the_same_envelope_as_emit() {
    let mut world = World::with_kv().await;
    for (table, key) in [
        ("queue", "queue:{name}"),
        ("partition", "partition:{name}:{n}"),
        ("consumer_group", "group:{name}"),
    ] {
        world
            .run(&format!(
                "create table {table} (name text, n int, max_retries int, primary key ({}))",
                if table == "partition" { "name, n" } else { "name" }
            ))
            .await;
        let definition = WatchDefinition::new(table)
            .key(key)
            .tag("queue:{name}")
            .with_changes();
        assert_eq!(
            watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
            Watched::Installed
        );
        assert_eq!(
            watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
            Watched::Unchanged
        );
    }
    assert!(
        watches(&world.admin)
            .await
            .unwrap()
            .iter()
            .all(|watch| watch.definition.changes)
    );
    let mut app = App::start(&world, "server-1", |_| ()).await;
    let whole = |old: bool| {
        let mut fields = serde_json::Map::new();
        for (field, value) in [
            ("name", json!("jobs")),
            ("n", json!(1)),
            ("max_retries", json!(3)),
        ] {
            let change = if old {
                json!({"old": value, "new": null})
            } else {
                json!({"old": null, "new": value})
            };
            fields.insert(field.to_owned(), change);
        }
        Value::Object(fields)
    };
    let retried = json!({"max_retries": {"old": 3, "new": 5}});
    for (kind, sql, id, key, changes) in [
        (
            "queue.created",
            "insert into queue values ('jobs', 1, 3)",
            "jobs",
            "queue:jobs",
            whole(false),
        ),
        (
            "queue.updated",
            "update queue set max_retries = 5",
            "jobs",
            "queue:jobs",
            retried.clone(),
        ),
        (
            "queue.deleted",
            "update queue set max_retries = 3; delete from queue",
            "jobs",
            "queue:jobs",
            whole(true),
        ),
        (
            "partition.created",
            "insert into partition values ('jobs', 1, 3)",
            "jobs:1",
            "partition:jobs:1",
            whole(false),
        ),
        (
            "partition.deleted",
            "delete from partition",
            "jobs:1",
            "partition:jobs:1",
            whole(true),
        ),
        (
            "consumer_group.created",
            "insert into consumer_group values ('jobs', 1, 3)",
            "jobs",
            "group:jobs",
            whole(false),
        ),
        (
            "consumer_group.updated",
            "update consumer_group set max_retries = 5",
            "jobs",
            "group:jobs",
            retried,
        ),
    ] {
        world.run(sql).await;
        let mut event = Event::new(kind).changes(changes);
        event.keys = vec![pgevict::Key::new(key).unwrap()];
        event.tags = vec![pgevict::Tag::new("queue:jobs").unwrap()];
        event.entity_type = kind.split('.').next().map(str::to_owned);
        event.entity_id = Some(id.to_owned());
        drop(app.pgevict.emit(&world.admin, event).await.unwrap());
        let deliveries = app.deliveries().await;
        let [.., Delivery::Event(watched), Delivery::Event(emitted)] = &deliveries[..] else {
            panic!("{kind}: {deliveries:?}");
        };
        assert_eq!(emitted.source.as_deref(), Some("server-1"));
        assert_eq!(watched.source, None, "a trigger knows no instance");
        let mut expected = emitted.event.clone();
        expected.source = None;
        assert_eq!(watched.event, expected, "{kind}");
        assert_eq!(watched.version, emitted.version);
    }
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a1_each_row_is_an_event_with_what_changed_in_it() {
    let world = watched(
        "create table products (id int primary key, category_id int, name text, price numeric); \
         select pgevict.watch('products', 'product:{id}', array['category:{category_id}'], array['c:{category_id}:'], changes => true)",
    )
    .await;
    world
        .run("insert into products values (1, 7, 'a', 1.50), (2, 7, null, null), (3, null, 'c', 0)")
        .await;
    let events = told(&world).await;
    let ids: Vec<_> = events.iter().map(|event| event.id.as_deref().unwrap()).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    // What is NULL in both versions did not change: nothing of it is said.
    assert_eq!(
        events[1].changes,
        Some(json!({"id": {"old": null, "new": 2}, "category_id": {"old": null, "new": 7}}))
    );
    assert_eq!(events[2].keys, ["product:3"]);
    assert_eq!(events[2].tags, ["category:%N"]);

    // Two of three rows change; both versions' texts are told.
    world
        .run("update products set category_id = case id when 1 then 8 else category_id end, name = case id when 2 then '' else name end")
        .await;
    let mut events = told(&world).await;
    events.sort_by_key(|event| event.id.clone());
    assert_eq!(events.len(), 2);
    assert_eq!(
        events[0],
        Told {
            kind: "products.updated".into(),
            id: Some("1".into()),
            keys: vec!["product:1".into()],
            tags: vec!["category:7".into(), "category:8".into()],
            prefixes: vec!["c:7:".into(), "c:8:".into()],
            flush: false,
            changes: Some(json!({"category_id": {"old": 7, "new": 8}})),
        }
    );
    assert_eq!(events[1].changes, Some(json!({"name": {"old": null, "new": ""}})));

    for sql in [
        "update products set name = name, price = price",
        "update products set name = 'x' where id = 1000",
        "delete from products where id = 1000",
        "insert into products values (1) on conflict do nothing",
    ] {
        assert!(after(&world, sql).await.is_empty(), "{sql}");
    }

    // Another key is another row; rows may swap theirs.
    world.run("update products set id = 10 where id = 1").await;
    let mut events = told(&world).await;
    events.sort_by_key(|event| event.id.clone());
    let said: Vec<_> = events
        .iter()
        .map(|event| (event.kind.as_str(), event.id.as_deref().unwrap(), &event.keys[..]))
        .collect();
    assert_eq!(
        said,
        [
            ("products.deleted", "1", &["product:1".to_owned()][..]),
            ("products.created", "10", &["product:10".to_owned()][..]),
        ]
    );
    assert_eq!(
        events[0].changes.as_ref().unwrap()["price"],
        json!({"old": "1.5", "new": null})
    );
    assert_eq!(
        events[1].changes.as_ref().unwrap()["price"],
        json!({"old": null, "new": "1.5"})
    );
    world
        .run("alter table products drop constraint products_pkey; alter table products add primary key (id) deferrable")
        .await;
    let mut swapped = after(
        &world,
        "update products set id = case id when 2 then 3 else 2 end where id in (2, 3)",
    )
    .await;
    swapped.sort_by_key(|event| event.1.clone());
    assert_eq!(
        swapped,
        [
            is(
                "products.updated",
                "2",
                json!({"category_id": {"old": 7, "new": null}, "name": {"old": "", "new": "c"}, "price": {"old": null, "new": "0"}})
            ),
            is(
                "products.updated",
                "3",
                json!({"category_id": {"old": null, "new": 7}, "name": {"old": "c", "new": ""}, "price": {"old": "0", "new": null}})
            ),
        ]
    );

    world
        .run("alter table products drop constraint products_pkey; alter table products add primary key (id)")
        .await;
    let mut merged = after(
        &world,
        "insert into products values (2, 1), (20, 1) on conflict do nothing; \
         merge into products p using (values (2), (30)) v (id) on p.id = v.id when matched then delete \
         when not matched then insert (id) values (v.id)",
    )
    .await;
    merged.sort_by_key(|event| event.1.clone());
    let said: Vec<_> = merged
        .iter()
        .map(|(kind, id, _)| (kind.as_str(), id.as_deref().unwrap()))
        .collect();
    assert_eq!(
        said,
        [
            ("products.deleted", "2"),
            ("products.created", "20"),
            ("products.created", "30")
        ]
    );
    world.run("truncate products").await;
    let events = told(&world).await;
    assert_eq!(
        (events.len(), &events[0].id, &events[0].changes),
        (1, &None, &None)
    );
    assert_eq!(events[0].prefixes, ["c:", "category:", "product:"]);
}

#[tokio::test]
async fn a1_columns_say_what_counts_and_what_is_shown() {
    let mut world = watched(
        "create table t (id int primary key, a int, b int, c int); \
         select pgevict.watch('t', 't:{id}', array['a:{a}'], columns => array['b'], changes => true)",
    )
    .await;
    assert_eq!(
        after(&world, "insert into t values (1, 2, 3, 4)").await,
        [is(
            "t.created",
            "1",
            json!({"id": {"old": null, "new": 1}, "a": {"old": null, "new": 2}, "b": {"old": null, "new": 3}})
        )]
    );
    assert!(after(&world, "update t set c = 5").await.is_empty());
    // The column of a template counts too; what does not count is not shown.
    assert_eq!(
        after(&world, "update t set a = 6, c = 7").await,
        [is("t.updated", "1", json!({"a": {"old": 2, "new": 6}}))]
    );

    // All columns: one that is added later counts at once, and is shown once the table is watched again.
    let all = WatchDefinition::new("t").key("t:{id}").with_changes();
    watch(&mut world.admin, &all, LOCK_LIMIT).await.unwrap();
    world.run("alter table t add later int").await;
    told(&world).await;
    assert_eq!(
        after(&world, "update t set later = 1").await,
        [is("t.updated", "1", json!({}))]
    );
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    assert_eq!(
        watch(&mut world.admin, &all, LOCK_LIMIT).await.unwrap(),
        Watched::Replaced
    );
    told(&world).await;
    assert_eq!(
        after(&world, "update t set later = 2").await,
        [is("t.updated", "1", json!({"later": {"old": 1, "new": 2}}))]
    );
    // Back to statements.
    let plain = WatchDefinition::new("t").key("t:{id}");
    watch(&mut world.admin, &plain, LOCK_LIMIT).await.unwrap();
    told(&world).await;
    world.run("update t set a = 0").await;
    assert_eq!(told(&world).await[0].id, None);
    assert!(unwatch(&mut world.admin, "t", LOCK_LIMIT).await.unwrap());
}

#[tokio::test]
async fn a1_values_arrive_exactly_whatever_their_type_and_the_writers_settings() {
    let world = World::start().await;
    world
        .run("create type pair as (a int, b text); create type mood as enum ('so so', 'good'); create domain small as int; \
              create function evil(pair) returns text language plpgsql as $$ begin raise exception 'ran as %', current_user; end $$; \
              create function evil_json(pair) returns json language plpgsql as $$ begin raise exception 'ran as %', current_user; end $$; \
              create cast (pair as text) with function evil(pair) as implicit; \
              create cast (pair as json) with function evil_json(pair) as implicit")
        .await;
    for (kind, value, expected) in [
        ("smallint", "-32768", json!(-32768)),
        ("integer", "2147483647", json!(2_147_483_647)),
        ("small", "5", json!(5)),
        ("bigint", "9007199254740993", json!("9007199254740993")),
        (
            "numeric",
            "123456789012345678901234567890.10",
            json!("123456789012345678901234567890.1"),
        ),
        ("numeric", "'NaN'", json!("NaN")),
        ("real", "1.1", json!("1.1")),
        ("float8", "0.1", json!("0.1")),
        ("float8", "'-Infinity'", json!("-Infinity")),
        ("boolean", "true", json!(true)),
        ("boolean", "false", json!(false)),
        ("text", "''", json!("")),
        (
            "text",
            "E'a\"b\\\\c\\n\\t\\u0001é😀'",
            json!("a\"b\\c\n\t\u{1}é😀"),
        ),
        ("char(5)", "'ab'", json!("ab")),
        (
            "uuid",
            "'00000000-0000-0000-0000-0000000000ff'",
            json!("00000000-0000-0000-0000-0000000000ff"),
        ),
        ("bytea", "'\\x00ff'", json!("00ff")),
        (
            "timestamptz",
            "'2026-11-30 12:00:00.5+02'",
            json!("2026-11-30T10:00:00.5Z"),
        ),
        ("timestamp", "'2026-11-30 12:00:00'", json!("2026-11-30T12:00:00")),
        ("date", "'2026-11-30'", json!("2026-11-30")),
        ("interval", "'26 hours'", json!("P1DT2H")),
        (
            "json",
            "'{\"a\": \"\\u0000\", \"n\": 1e400, \"n\": 2}'",
            json!("{\"a\": \"\\u0000\", \"n\": 1e400, \"n\": 2}"),
        ),
        ("jsonb", "'{\"a\": [1, null]}'", json!("{\"a\": [1, null]}")),
        ("mood", "'so so'", json!("so so")),
        ("mood[]", "'{so so}'", json!("{\"so so\"}")),
        ("pair", "row(1, 'x')", json!("(1,x)")),
        ("pair", "row(null, null)", json!("(,)")),
        ("int[]", "'{1,null}'", json!("{1,NULL}")),
        ("money", "12.5", json!("$12.50")),
        ("inet", "'10.0.0.1'", json!("10.0.0.1/32")),
    ] {
        world
            .run("set timezone = 'UTC'; set datestyle = 'ISO'; set intervalstyle = 'postgres'; set search_path = public")
            .await;
        world
            .run(&format!(
                "create table t (id int primary key, v {kind}); select pgevict.watch('t', 't:{{id}}', changes => true)"
            ))
            .await;
        told(&world).await;
        world
            .run("set timezone = 'Asia/Kolkata'; set datestyle = 'German'; set intervalstyle = 'sql_standard'; \
                  set extra_float_digits = -15; set bytea_output = 'escape'")
            .await;
        for (sql, kind, changes) in [
            (
                format!("insert into public.t values (1, {value})"),
                "t.created",
                json!({"id": {"old": null, "new": 1}, "v": {"old": null, "new": expected}}),
            ),
            (
                "update public.t set v = null".into(),
                "t.updated",
                json!({"v": {"old": expected, "new": null}}),
            ),
            (
                format!("update public.t set v = {value}"),
                "t.updated",
                json!({"v": {"old": null, "new": expected}}),
            ),
            (
                "delete from public.t".into(),
                "t.deleted",
                json!({"id": {"old": 1, "new": null}, "v": {"old": expected, "new": null}}),
            ),
        ] {
            assert_eq!(after(&world, &sql).await, [is(kind, "1", changes)], "{sql}");
        }
        world.run("drop table public.t").await;
    }
}

#[tokio::test]
async fn a1_keys_of_several_columns_and_none() {
    let world = watched(
        "create table pairs (b text, a int, v int, primary key (a, b)); create table loose (a int, v int); \
         select pgevict.watch('pairs', 'p:{a}', changes => true); select pgevict.watch('loose', 'l:{a}', changes => true)",
    )
    .await;
    let ids: Vec<_> = after(&world, "insert into pairs values ('x:y', 1, 1), ('', 2, 1)")
        .await
        .into_iter()
        .map(|event| event.1.unwrap())
        .collect();
    assert_eq!(ids, ["1:x%3Ay", "2:"]);
    let made = after(&world, "insert into loose values (1, 1), (2, 1)").await;
    assert_eq!(made.len(), 2);
    assert_eq!(made[0].1, None);
    assert_eq!(
        made[0].2,
        json!({"a": {"old": null, "new": 1}, "v": {"old": null, "new": 1}})
    );
    // One row is paired; of several nobody can say which became which, so that only keys are told.
    assert_eq!(
        after(&world, "update loose set v = 2 where a = 1").await,
        [("loose.updated".into(), None, json!({"v": {"old": 1, "new": 2}}))]
    );
    world.run("update loose set v = 3").await;
    let events = told(&world).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].keys, ["l:1", "l:2"]);
    assert_eq!((&events[0].id, &events[0].changes), (&None, &None));
    // A primary key that is gone tells rows apart no more.
    world
        .run("alter table pairs drop constraint pairs_pkey; alter table pairs alter a drop not null, alter b drop not null; \
              insert into pairs values ('x:y', 1, 5), (null, 7, 1)")
        .await;
    told(&world).await;
    world.run("update pairs set v = v + 1").await;
    let events = told(&world).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].keys, ["p:1", "p:2", "p:7"]);
}

/// `emit` takes no entity_id over 16 MiB either.
#[tokio::test]
async fn g4_a_row_with_a_huge_id_is_told_without_it() {
    let world = watched(
        "create table t (id text primary key, v int); select pgevict.watch('t', tags => array['v:{v}'], changes => true); \
         alter table t drop constraint t_pkey",
    )
    .await;
    world.run("insert into t values (repeat('x', 20000000), 1)").await;
    let size = "select coalesce(max(octet_length(entity_id)), 0) from pgevict.event";
    assert_eq!(world.text(size).await, "0");
    assert_eq!(world.event().await.tags, ["v:1"]);
}

#[tokio::test]
async fn g4_large_values_and_many_rows_break_no_write() {
    let world = watched(
        "create table t (id int primary key, a text, b text); \
         insert into t select n, 'a', 'b' from generate_series(1, 1001) n; \
         select pgevict.watch('t', 't:{id}', changes => true)",
    )
    .await;
    // What is too large is left out with all of that row; a large column that did not change is no matter.
    world
        .run("update t set a = repeat('x', 1000000) where id in (1, 2)")
        .await;
    let events = told(&world).await;
    assert_eq!(events.len(), 2);
    assert!(
        events
            .iter()
            .all(|event| event.changes.is_none() && event.keys.len() == 1)
    );
    assert_eq!(
        after(&world, "update t set b = 'c' where id = 1").await,
        [is("t.updated", "1", json!({"b": {"old": "b", "new": "c"}}))]
    );
    let sixty = after(&world, "update t set b = repeat('é', 30000) where id = 1").await;
    assert_eq!(sixty[0].2["b"]["new"].as_str().map(str::len), Some(60000));
    // Short in the row, long as JSON.
    assert_eq!(
        after(&world, "update t set b = repeat(chr(1), 20000) where id = 1").await[0].2,
        "none"
    );
    world
        .run("update t set b = repeat('x', 20000) where id > 1")
        .await;
    let events = told(&world).await;
    assert_eq!(events.len(), 1000);
    assert!(events.iter().all(|event| event.changes.is_none()));

    world.run("update t set a = 'z' where id < 1001").await;
    assert_eq!(told(&world).await.len(), 1000);
    world.run("update t set a = 'y'").await;
    let events = told(&world).await;
    assert_eq!(
        (events.len(), &events[0].prefixes[..]),
        (1, &["t:".to_owned()][..])
    );
    // Many rows touched, few changed.
    let few = after(&world, "update t set a = case when id <= 3 then 'w' else a end").await;
    assert_eq!(few.len(), 3);
    // A key too large for an event.
    world
        .run("create table k (id text); select pgevict.watch('k', 'k:{id}', changes => true)")
        .await;
    told(&world).await;
    world.run("insert into k values (repeat('k', 1048576))").await;
    assert_eq!(told(&world).await[0].prefixes, ["k:"]);
    // Telling costs no transaction id of its own, however many statements.
    let next = "select pg_snapshot_xmax(pg_current_snapshot())";
    let before: u64 = world.text(next).await.parse().unwrap();
    let update = "update t set a = a || 'v' where id in (1, 3);".repeat(100);
    world.run(&format!("begin; {update} commit")).await;
    let after: u64 = world.text(next).await.parse().unwrap();
    assert_eq!(after - before, 1);
    assert_eq!(told(&world).await.len(), 200);
}

#[tokio::test]
async fn g4_odd_names_and_schema_changes_break_no_write() {
    let mut world = World::start().await;
    let names = [
        "size",
        "c1",
        "o1",
        "n1",
        "verb",
        "id",
        "stale",
        "changes",
        "o",
        "n",
        "d",
        "s",
        "v_act",
        "tg_op",
        "found",
        "it's \"q\" \\ %s $1",
        "a\nb",
        "rows",
    ];
    let columns: Vec<_> = names
        .iter()
        .map(|name| format!("\"{}\" int", name.replace('"', "\"\"")))
        .collect();
    let table = "\"x\"\"; --\"";
    world
        .run(&format!(
            "create table {table} ({}, primary key (size, \"it's \"\"q\"\" \\ %s $1\"))",
            columns.join(", ")
        ))
        .await;
    let definition = WatchDefinition::new(table).key("k:{size}").with_changes();
    watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    told(&world).await;
    let ones = vec!["1"; names.len()].join(", ");
    let made = after(&world, &format!("insert into {table} values ({ones})")).await;
    let all: serde_json::Map<_, _> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({"old": null, "new": 1})))
        .collect();
    assert_eq!(made, [is("x\"; --.created", "1:1", Value::Object(all))]);
    assert_eq!(
        after(&world, &format!("update {table} set \"a\nb\" = 2, n = 3")).await,
        [is(
            "x\"; --.updated",
            "1:1",
            json!({"a\nb": {"old": 1, "new": 2}, "n": {"old": 1, "new": 3}})
        )]
    );

    world
        .run("create table t (id int primary key, a int, b int); insert into t values (1, 1, 1)")
        .await;
    let definition = WatchDefinition::new("t").key("t:{id}").with_changes();
    for (change, back) in [
        ("alter table t rename b to c", "alter table t rename c to b"),
        (
            "alter table t rename a to x; alter table t rename b to a; alter table t rename x to b",
            "alter table t rename a to x; alter table t rename b to a; alter table t rename x to b",
        ),
        (
            "alter table t alter a type bigint",
            "alter table t alter a type int",
        ),
        (
            "alter table t alter a type text",
            "alter table t alter a type int using a::int",
        ),
        ("alter table t drop b", "alter table t add b int"),
    ] {
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
        told(&world).await;
        world
            .run("update t set a = 1; update t set a = 2; update t set a = 1")
            .await;
        told(&world).await;
        world.run(change).await;
        for sql in [
            "update t set id = id + 1",
            "insert into t values (100)",
            "delete from t where id = 100",
        ] {
            world.run(sql).await;
            let events = told(&world).await;
            assert_eq!(events.len(), 1, "{change}: {sql}");
            assert_eq!(events[0].prefixes, ["t:"], "{change}: {sql}");
            assert_eq!(events[0].changes, None, "{change}: {sql}");
        }
        let state = watches(&world.admin).await.unwrap();
        assert_eq!(
            state.iter().find(|watch| watch.table == "t").unwrap().state,
            WatchState::Drifted,
            "{change}"
        );
        world.run(back).await;
    }
    // Virtual columns cannot be seen by triggers, and one event holds only so much.
    let wide: Vec<_> = (0..501).map(|n| format!("c{n} int")).collect();
    world
        .run(&format!("create table wide ({})", wide.join(", ")))
        .await;
    let (code, message) = crate::support::refusal(
        &world.admin,
        "select pgevict.watch('wide', 'w:{c0}', changes => true)",
    )
    .await;
    assert_eq!(code, "22023");
    assert!(
        message.contains("501") && message.contains("columns"),
        "{message}"
    );
    world
        .run("alter table wide drop c500; select pgevict.watch('wide', 'w:{c0}', changes => true); insert into wide values (1)")
        .await;
    world.run("update wide set c499 = 5").await;
    let last = told(&world).await.pop().unwrap();
    assert_eq!(last.changes, Some(json!({"c499": {"old": null, "new": 5}})));
}

/// What is not told need not be worked out; a smoke alarm, far off what it takes.
#[tokio::test]
async fn many_rows_of_many_columns_cost_as_much_as_without_changes() {
    let world = World::start().await;
    for name in ["plainly", "changes"] {
        world
            .run(&format!(
                "do $$ begin execute (select 'create table {name} (id int primary key, ' \
                   || string_agg(format('c%s int default 1', n), ', ') || ')' from generate_series(1, 300) n); end $$; \
                 insert into {name} (id) select generate_series(1, 10000)"
            ))
            .await;
    }
    world
        .run(
            "select pgevict.watch('plainly', key => 'row:{id}'); \
             select pgevict.watch('changes', key => 'row:{id}', changes => true)",
        )
        .await;
    told(&world).await;
    let mut took = Vec::new();
    for name in ["plainly", "changes"] {
        let mut fastest = std::time::Duration::MAX;
        for _ in 0..3 {
            let started = std::time::Instant::now();
            world.run(&format!("update {name} set c1 = c1 + 1")).await;
            fastest = fastest.min(started.elapsed());
        }
        took.push(fastest);
        for event in told(&world).await {
            assert_eq!((event.id, event.prefixes), (None, vec!["row:".to_owned()]));
        }
    }
    assert!(took[1] < took[0] * 2, "{took:?}");
}
