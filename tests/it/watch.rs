//! Watched tables: what a statement makes stale, and that the write always goes through.

use std::time::{Duration, Instant};

use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, Watched, unwatch, watch};

use crate::support::World;

pub(crate) const PRODUCTS: &str =
    "create table products (id int primary key, category_id int, name text, price numeric, note json)";

pub(crate) async fn products() -> World {
    let mut world = World::start().await;
    world.run(PRODUCTS).await;
    let definition = WatchDefinition::new("products")
        .key("product:{id}")
        .tag("category:{category_id}");
    assert_eq!(
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
        Watched::Installed
    );
    world.events().await;
    world
}

#[tokio::test]
async fn each_statement_is_one_event_with_old_and_new_texts() {
    let world = products().await;
    for (sql, verb, keys, tags) in [
        (
            "insert into products values (1, 7, 'a', 1.0), (2, 7, 'b', 1.0), (3, null, 'c', 1.0)",
            "created",
            &["product:1", "product:2", "product:3"][..],
            &["category:%N", "category:7"][..],
        ),
        (
            "update products set category_id = 8 where id = 1",
            "updated",
            &["product:1"],
            &["category:7", "category:8"],
        ),
        (
            "update products set id = 10 where id = 1",
            "updated",
            &["product:1", "product:10"],
            &["category:8"],
        ),
        (
            "update products set name = case id when 2 then 'z' else name end",
            "updated",
            &["product:2"],
            &["category:7"],
        ),
        (
            "delete from products where id = 10",
            "deleted",
            &["product:10"],
            &["category:8"],
        ),
        (
            "with a as (insert into products values (20, 1) returning id), b as (insert into products values (21, 1) returning id) \
          select * from a, b",
            "created",
            &["product:20", "product:21"],
            &["category:1"],
        ),
        (
            "copy products (id) from program 'echo 30'",
            "created",
            &["product:30"],
            &["category:%N"],
        ),
    ] {
        world.run(sql).await;
        let event = world.event().await;
        assert_eq!(event.keys, keys, "{sql}");
        assert_eq!(event.tags, tags, "{sql}");
        assert!(event.prefixes.is_empty(), "{sql}");
        assert_eq!(
            event.kind.as_deref(),
            Some(format!("products.{verb}").as_str()),
            "{sql}"
        );
        assert_eq!(event.entity_type.as_deref(), Some("products"));
        assert_eq!(event.announced, "n");
    }
    world
        .run("insert into products values (2, 7), (40, 7) on conflict (id) do update set price = 5")
        .await;
    let events = world.events().await;
    let keys: Vec<_> = events
        .iter()
        .map(|event| (event.kind.clone().unwrap(), event.keys.clone()))
        .collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert!(
        keys.contains(&("products.created".into(), vec!["product:40".into()])),
        "{keys:?}"
    );
    assert!(
        keys.contains(&("products.updated".into(), vec!["product:2".into()])),
        "{keys:?}"
    );
    world
        .run(
            "merge into products p using (values (2), (50)) v (id) on p.id = v.id when matched then delete \
        when not matched then insert (id) values (v.id)",
        )
        .await;
    assert_eq!(world.events().await.len(), 2);
}

#[tokio::test]
async fn nothing_changed_is_no_event() {
    let world = products().await;
    world
        .run("insert into products values (1, 7, 'a', 1.0, '{}'), (2, 7, 'b', 1.0, null)")
        .await;
    world.events().await;
    for sql in [
        "update products set name = name, note = note",
        "update products set price = 2 where id = 1000",
        "delete from products where id = 1000",
        "insert into products select * from products where false",
        "insert into products values (1) on conflict do nothing",
    ] {
        world.run(sql).await;
        assert!(world.events().await.is_empty(), "{sql}");
    }
    // NULL and an empty text are two values; so are rows that swap theirs.
    world.run("update products set name = ''").await;
    world.run("update products set name = null where id = 1").await;
    world
        .run("update products set name = case when id = 2 then null else '' end")
        .await;
    let keys: Vec<_> = world.events().await.into_iter().map(|event| event.keys).collect();
    assert_eq!(
        keys,
        [
            vec!["product:1", "product:2"],
            vec!["product:1"],
            vec!["product:1", "product:2"]
        ]
    );
}

#[tokio::test]
async fn columns_narrow_what_counts() {
    let mut world = World::start().await;
    world.run(PRODUCTS).await;
    let mut definition = WatchDefinition::new("products")
        .key("product:{id}")
        .tag("category:{category_id}");
    definition.columns = Some(vec!["price".into()]);
    watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    world
        .run("insert into products values (1, 7, 'a', 1.0), (2, 7, 'b', 1.0)")
        .await;
    world.events().await;
    world.run("update products set name = 'other'").await;
    assert!(world.events().await.is_empty());
    world.run("update products set price = 2 where id = 1; ").await;
    assert_eq!(world.event().await.keys, ["product:1"]);
    world
        .run("update products set category_id = 8 where id = 2")
        .await;
    assert_eq!(world.event().await.tags, ["category:7", "category:8"]);
}

#[tokio::test]
async fn without_a_primary_key_every_row_counts() {
    let world = World::start().await;
    world.run("create table t (id int, x int); select pgevict.watch('t', 't:{id}'); insert into t values (1, 1), (2, 1)").await;
    world.events().await;
    world.run("update t set x = x").await;
    assert_eq!(world.event().await.keys, ["t:1", "t:2"]);
}

#[tokio::test]
async fn many_rows_drop_by_prefix() {
    let world = products().await;
    world
        .run("insert into products select n, n % 3 from generate_series(1, 1000) n")
        .await;
    assert_eq!(world.event().await.keys.len(), 1000);
    let wide = ["category:", "product:"];
    for sql in [
        "insert into products select n, 1 from generate_series(2001, 3001) n",
        "update products set price = 1",
        "delete from products where id > 500",
        "truncate products",
    ] {
        world.run(sql).await;
        let event = world.event().await;
        assert_eq!(event.prefixes, wide, "{sql}");
        assert!(
            event.keys.is_empty() && event.tags.is_empty() && !event.flush,
            "{sql}"
        );
    }
    world
        .run("insert into products select n, 1 from generate_series(1, 5000) n")
        .await;
    world.events().await;
    // Much is touched, little changed: by key. More rows changed than that: by prefix.
    world
        .run("update products set price = case when id <= 5 then 3 end")
        .await;
    assert_eq!(world.event().await.keys.len(), 5);
    world.run("update products set price = 4").await;
    assert_eq!(world.event().await.prefixes, wide);

    world
        .run("select pgevict.watch('products', 'product:{id}', escalate_above => 10000)")
        .await;
    world.events().await;
    world.run("update products set price = 5 where id <= 2500").await;
    let events = world.events().await;
    assert_eq!(
        events.iter().map(|event| event.keys.len()).collect::<Vec<_>>(),
        [1000, 1000, 500]
    );
    // A thousand rows with old and new keys are still one event.
    world
        .run("update products set id = id + 100000 where id <= 1000")
        .await;
    assert_eq!(world.event().await.keys.len(), 2000);
}

#[tokio::test]
async fn odd_names_and_values_arrive_exactly() {
    let mut world = World::start().await;
    world.run("create table canary (id int)").await;
    world.run("create schema \"it's \"\"q\"\" \\ %s\"").await;
    world
        .run(
            "create table \"it's \"\"q\"\" \\ %s\".\"x\"\"; DROP TABLE canary; --\" \
        (id int, \"x\"\"; DROP TABLE canary; --\" text, \"it's \"\"q\"\" $1 \\ %s\" text, \
         primary key (\"it's \"\"q\"\" $1 \\ %s\"))",
        )
        .await;
    let table = "\"it's \"\"q\"\" \\ %s\".\"x\"\"; DROP TABLE canary; --\"";
    let definition = WatchDefinition::new(table)
        .key("k:{x\"; DROP TABLE canary; --}")
        .tag("it's \"q\" $1 \\ %s:{it's \"q\" $1 \\ %s}")
        .tag("{schema}/{table}:{id}");
    for setting in ["on", "off"] {
        world
            .run(&format!(
                "set standard_conforming_strings = {setting}; set escape_string_warning = off"
            ))
            .await;
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
        world.events().await;
        world
            .admin
            .execute(
                &format!("insert into {table} values (1, $1, $2)"),
                &[&"a:b", &"é\u{1}"],
            )
            .await
            .unwrap();
        let event = world.event().await;
        assert_eq!(event.keys, ["k:a%3Ab"]);
        assert_eq!(
            event.tags,
            [
                "it's \"q\" $1 \\ %s:%C3%A9%01",
                "it%27s%20%22q%22%20%5C%20%25s/x%22%3B%20DROP%20TABLE%20canary%3B%20--:1"
            ]
        );
        world.run(&format!("update {table} set id = id")).await;
        assert!(world.events().await.is_empty());
        world.run(&format!("update {table} set id = 2")).await;
        assert_eq!(
            world.event().await.kind.as_deref(),
            Some("x\"; DROP TABLE canary; --.updated")
        );
        world.run(&format!("delete from {table}")).await;
        assert!(unwatch(&mut world.admin, table, LOCK_LIMIT).await.unwrap());
        world.events().await;
    }
    world.run("select * from canary").await;
}

#[tokio::test]
async fn texts_over_the_limits_become_prefixes_and_the_write_goes_through() {
    let world = World::start().await;
    world.run("create table t (id text, x text); select pgevict.watch('t', 't:{id}', array['x:{x}', 'all', 'all:t'])").await;
    world.events().await;
    world
        .run("insert into t values (repeat('k', 1048576), 'a')")
        .await;
    let event = world.event().await;
    assert_eq!(event.prefixes, ["t:", "x:"]);
    // Templates without a placeholder name themselves, not all that begins with them.
    assert_eq!(event.tags, ["all", "all:t"]);
    world
        .run("insert into t select n || repeat('k', 20000), 'a' from generate_series(1, 1000) n")
        .await;
    assert_eq!(world.event().await.prefixes, ["t:", "x:"]);
    world
        .run("insert into t values (repeat('é', 3000), repeat('k', 20000))")
        .await;
    let event = world.event().await;
    assert_eq!(event.keys[0].len(), 2 + 18_000);
    assert_eq!(event.tags.len(), 3);
}

#[tokio::test]
async fn settings_of_the_writer_do_not_change_keys() {
    let world = World::start().await;
    world.run("create table t (id numeric primary key, at timestamptz, f float8, b bytea, c char(5), d date, i interval); \
        select pgevict.watch('t', 't:{id}', array['at:{at}', 'f:{f}', 'b:{b}', 'c:{c}', 'd:{d}', 'i:{i}'])").await;
    world.events().await;
    let mut seen = Vec::new();
    for settings in [
        "select 1",
        "set timezone = 'Asia/Kolkata'; set datestyle = 'SQL, DMY'; set intervalstyle = 'sql_standard'; \
         set extra_float_digits = -15; set bytea_output = 'escape'; set search_path = ''; set row_security = off; \
         set plpgsql.extra_errors = 'all'; set transform_null_equals = on; set array_nulls = off; set jit_above_cost = 0",
    ] {
        world.run(settings).await;
        world.run("insert into public.t values (1.50, '2026-11-30T10:00:00Z', 0.1, '\\x00ff', 'ab', '2026-11-30', '26:00:00')").await;
        seen.push(world.event().await);
        world.run("delete from public.t").await;
        world.events().await;
    }
    assert_eq!(seen[0].keys, ["t:1.5"]);
    assert_eq!(
        seen[0].tags,
        [
            "at:2026-11-30T10%3A00%3A00Z",
            "f:0.1",
            "b:00ff",
            "c:ab",
            "d:2026-11-30",
            "i:P1DT2H"
        ]
    );
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_cast_of_the_writers_never_runs_with_our_rights() {
    let world = World::start().await;
    world.run("create type pair as (a int, b text); create type mood as enum ('so so'); \
        create function evil(pair) returns text language plpgsql as $$ begin \
          raise exception 'ran as %', current_user; end $$; \
        create cast (pair as text) with function evil(pair) as implicit; \
        create table t (id pair, m mood, ms mood[]); select pgevict.watch('t', 't:{id}', array['m:{m}:{ms}'])").await;
    world.events().await;
    world
        .run("insert into t values (row(1, 'x'), 'so so', '{so so}'), (null, null, null)")
        .await;
    let event = world.event().await;
    assert_eq!(event.keys, ["t:%281%2Cx%29", "t:%N"]);
    assert_eq!(event.tags, ["m:%N:%N", "m:so%20so:%7B%22so%20so%22%7D"]);
}

#[tokio::test]
async fn the_trigger_keeps_up() {
    // A smoke alarm for what would hold up a writer (limit 500 ms): far off what it takes, so that load does not ring it.
    let world = products().await;
    world
        .run("insert into products select n, n % 7, 'name ' || n, n from generate_series(1, 20000) n")
        .await;
    world
        .run("create table plain (like products including all); insert into plain select * from products")
        .await;
    let time = async |sql: &str| {
        let start = Instant::now();
        world.run(sql).await;
        start.elapsed()
    };
    let watched = time("update products set price = price").await;
    let plain = time("update plain set price = price").await;
    let more = watched.saturating_sub(plain);
    println!("comparing 20,000 rows: {more:?} more than {plain:?}");
    assert!(more < Duration::from_secs(2), "{more:?}");
}

/// Templates that name no column at all: each change is told, an update that changes nothing is not.
#[tokio::test]
async fn a_watch_of_constants_only_tells_of_each_change() {
    let world = World::start().await;
    world.run("create table one (id int primary key, v text)").await;
    for install in [
        "select pgevict.watch('one', key => 'const')",
        "select pgevict.watch('one', tags => array['{schema}.{table}'], flush_ok => true)",
        "select pgevict.watch('one', key => 'const', columns => array['v'])",
    ] {
        world.run(install).await;
        world.events().await;
        for change in [
            "insert into one values (1, 'a')",
            "insert into one values (2, 'a'), (3, 'a')",
            "update one set v = 'b' where id = 1",
            "update one set v = 'b'",
            "delete from one where id = 1",
            "truncate one",
        ] {
            world.run(change).await;
            let events = world.events().await;
            assert_eq!(events.len(), 1, "{install}: {change}: {events:?}");
            let named = [events[0].keys.as_slice(), events[0].tags.as_slice()].concat();
            let expected = if install.contains("const") {
                "const"
            } else {
                "public.one"
            };
            assert_eq!(named, [expected], "{install}: {change}");
        }
        world.run("insert into one values (1, 'a')").await;
        world.events().await;
        world.run("update one set v = v").await;
        assert!(world.events().await.is_empty(), "{install}");
        world.run("truncate one").await;
    }
}
