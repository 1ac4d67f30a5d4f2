//! Watched tables of every shape: very wide ones and empty ones, columns that the server fills, types from elsewhere.

use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, WatchState, unwatch, watch, watches};

use crate::support::World;

/// No watch may have had to do with prefixes because its SQL failed.
fn rendered(world: &World) {
    let log = world.cluster.log();
    assert!(!log.contains("emits prefixes"), "{log}");
}

#[tokio::test]
async fn as_many_columns_as_there_can_be() {
    let world = World::start().await;
    let columns: Vec<_> = (2..=1600).map(|n| format!("c{n} smallint")).collect();
    world
        .run(&format!(
            "create table wide (id int primary key, {}); select pgevict.watch('wide', 'wide:{{id}}', array['last:{{c1600}}'])",
            columns.join(", ")
        ))
        .await;
    world.events().await;
    for (sql, keys, tags) in [
        (
            "insert into wide (id) values (1)",
            &["wide:1"][..],
            &["last:%N"][..],
        ),
        (
            "insert into wide (id, c1600) select n, n from generate_series(2, 4) n",
            &["wide:2", "wide:3", "wide:4"],
            &["last:2", "last:3", "last:4"],
        ),
        (
            "update wide set c1600 = 7 where id = 1",
            &["wide:1"],
            &["last:7", "last:%N"],
        ),
        (
            "update wide set c800 = 7 where id > 2",
            &["wide:3", "wide:4"],
            &["last:3", "last:4"],
        ),
        (
            "delete from wide where id in (1, 2)",
            &["wide:1", "wide:2"],
            &["last:2", "last:7"],
        ),
    ] {
        world.run(sql).await;
        let event = world.event().await;
        assert_eq!(event.keys, keys, "{sql}");
        let mut found = event.tags;
        found.sort();
        let mut tags = tags.to_vec();
        tags.sort_unstable();
        assert_eq!(found, tags, "{sql}");
    }
    world.run("update wide set c1600 = c1600").await;
    assert!(world.events().await.is_empty());
    rendered(&world);
}

#[tokio::test]
async fn no_column_at_all() {
    let mut world = World::start().await;
    world
        .run("create table nothing (); create table gone (id int); alter table gone drop id")
        .await;
    for table in ["nothing", "gone"] {
        let definition = WatchDefinition::new(table)
            .key(format!("{table}:all"))
            .tag("{schema}.{table}");
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
        world.events().await;
        for sql in [
            "insert into ? default values",
            "insert into ? select from generate_series(1, 3)",
            "delete from ?",
        ] {
            world.run(&sql.replace('?', table)).await;
            let event = world.event().await;
            assert_eq!(event.keys, [format!("{table}:all")], "{sql}");
            assert_eq!(event.tags, [format!("public.{table}")], "{sql}");
        }
        world.run(&format!("truncate {table}")).await;
        assert_eq!(world.event().await.keys, [format!("{table}:all")]);
    }
    assert!(
        watches(&world.admin)
            .await
            .unwrap()
            .iter()
            .all(|watch| watch.state == WatchState::Ok)
    );
    rendered(&world);
}

#[tokio::test]
async fn columns_that_the_server_fills() {
    let world = World::start().await;
    world
        .run("create table filled (gone int, id bigint generated always as identity primary key, name text, \
                lower_name text generated always as (lower(name)) stored, at timestamptz default '2026-11-30 10:00+00', gone2 text); \
              alter table filled drop gone, drop gone2; \
              select pgevict.watch('filled', 'filled:{id}', array['name:{lower_name}', 'at:{at}'], columns => array['name'])")
        .await;
    world.events().await;
    world.run("insert into filled (name) values ('Ann')").await;
    let event = world.event().await;
    assert_eq!(event.keys, ["filled:1"]);
    assert_eq!(event.tags, ["name:ann", "at:2026-11-30T10%3A00%3A00Z"]);
    world
        .run("insert into filled (name) values ('Bob'), ('Cid')")
        .await;
    assert_eq!(world.event().await.keys, ["filled:2", "filled:3"]);
    world.run("update filled set name = 'ANN' where id = 1").await;
    let event = world.event().await;
    assert_eq!(event.tags, ["name:ann", "at:2026-11-30T10%3A00%3A00Z"]);
    world.run("update filled set name = name || '!'").await;
    assert_eq!(world.event().await.tags.len(), 7);
    // A column that comes later, and one that goes.
    world
        .run("alter table filled add extra int, drop lower_name")
        .await;
    world.run("update filled set name = 'x' where id = 1").await;
    assert_eq!(world.event().await.prefixes, ["at:", "filled:", "name:"]);
}

#[tokio::test]
async fn types_from_elsewhere_and_rows_that_hide() {
    let world = World::start().await;
    world
        .run("create schema types; create type types.mood as enum ('so so', 'Good'); create domain types.own as types.mood not null; \
              create domain types.ids as int[] check (array_ndims(value) = 1); create type types.\"P q\" as (a int, b types.mood); \
              create type public.mood as enum ('other'); \
              create table t (id types.own primary key, ids types.ids, moods types.mood[], own types.own[], p types.\"P q\", \
                ps types.\"P q\"[], r int4range); \
              create role app_rw; grant select, insert, update, delete on t to app_rw; \
              alter table t enable row level security; alter table t force row level security; \
              create policy own on t to app_rw using (r is null) with check (true)")
        .await;
    world
        .run("select pgevict.watch('t', 't:{id}', array['ids:{ids}', 'moods:{moods}/{own}', 'p:{p}/{ps}', 'r:{r}'])")
        .await;
    world.events().await;
    // Without rights on the types' schema; under a policy that hides from the writer what he wrote.
    let app = world.session_of("app_rw").await;
    app.batch_execute(
        "insert into t values ('so so', '{1,2}', '{Good,null}', '{so so}', '(1,\"so so\")', '{\"(2,Good)\"}', '[1,5]')",
    )
    .await
    .unwrap();
    let expected = [
        "ids:%7B1%2C2%7D",
        "moods:%7BGood%2CNULL%7D/%7B%22so%20so%22%7D",
        "p:%281%2C%22so%20so%22%29/%7B%22%282%2CGood%29%22%7D",
        "r:%5B1%2C6%29",
    ];
    let event = world.event().await;
    assert_eq!(event.keys, ["t:so%20so"]);
    assert_eq!(event.tags, expected);
    app.batch_execute("insert into t (id) values ('Good'); update t set ids = '{3}'; delete from t")
        .await
        .unwrap();
    let keys: Vec<_> = world.events().await.into_iter().map(|event| event.keys).collect();
    assert_eq!(keys, vec![vec!["t:Good"]; 3]);
    world.run("update t set r = r, moods = '{}'").await;
    assert_eq!(world.event().await.tags.len(), 5);
    world.run("update t set r = null").await;
    assert_eq!(world.event().await.tags.len(), 5);
    rendered(&world);
}

#[tokio::test]
async fn one_name_in_many_schemas_is_many_watches() {
    let mut world = World::start().await;
    for n in 0..20 {
        world
            .run(&format!(
                "create schema s{n}; create table s{n}.t (id int primary key)"
            ))
            .await;
        let definition = WatchDefinition::new(format!("s{n}.t")).key("{schema}.{table}:{id}");
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    }
    world.events().await;
    for n in 0..20 {
        world.run(&format!("insert into s{n}.t values (1)")).await;
        assert_eq!(world.event().await.keys, [format!("s{n}.t:1")]);
    }
    // By the search path, and after a table of the same name came to stand before it.
    world.run("set search_path = s7").await;
    assert!(unwatch(&mut world.admin, "t", LOCK_LIMIT).await.unwrap());
    world.run("reset search_path; insert into s7.t values (2)").await;
    assert_eq!(world.event().await.kind.as_deref(), Some("t.unwatched"));
    world.run("drop schema s8 cascade").await;
    assert!(unwatch(&mut world.admin, "s8.t", LOCK_LIMIT).await.unwrap());
    assert_eq!(watches(&world.admin).await.unwrap().len(), 18);
    let names: Vec<_> = watches(&world.admin)
        .await
        .unwrap()
        .iter()
        .map(|watch| watch.name())
        .collect();
    assert!(
        !names.contains(&"s7.t".to_owned()) && !names.contains(&"s8.t".to_owned()),
        "{names:?}"
    );
}
