//! Names and payloads were put into the text of SQL: a quote broke it, or something else was run (pgo 118, skunk 1365).

use std::process::{Output, Stdio};

use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, unwatch, watch, watches};
use pgevict::{Event, Key, Prefix, Tag, key};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{Logged, World, text};

const HOSTILE: [&str; 9] = [
    "x\"; DROP TABLE canary; --",
    "it's \"q\" $1 \\ %s",
    "'; DROP TABLE canary; --",
    "\\'; DROP TABLE canary; --",
    "$$; $source$ end; $do$ DROP TABLE canary; --",
    "two\nlines\r\n\tand a tab",
    "-- */ /* é😀 :x @y ?",
    "\\",
    "%I%L%s%1$s%",
];

/// Names that our own SQL uses for something else.
const CLASHING: [&str; 42] = [
    "keys",
    "tags",
    "prefixes",
    "type",
    "announced",
    "entity_type",
    "v_act",
    "v_type",
    "v_whole",
    "v_changed",
    "v_chunk",
    "v_chunks",
    "v_old_1",
    "v_new_1",
    "tg_op",
    "tg_relid",
    "tg_argv",
    "new",
    "old",
    "n",
    "o",
    "r",
    "f1",
    "id",
    "side",
    "same",
    "changed",
    "rows",
    "stale",
    "tally",
    "numbered",
    "chunks",
    "pgevict_new",
    "pgevict_old",
    "target",
    "definition",
    "event",
    "select",
    "current_user",
    "found",
    "sqlerrm",
    "oid",
];

/// A server whose sessions read a backslash in a plain string as an escape, or not.
async fn world(conforming: &str) -> World {
    let mut world = World::start().await;
    world
        .run(&format!(
            "alter role postgres set standard_conforming_strings = {conforming}; \
             alter role postgres set backslash_quote = on; alter role postgres set escape_string_warning = off; \
             create table canary (id int); insert into canary values (1)"
        ))
        .await;
    world.admin = world.cluster.connect().await.unwrap();
    assert_eq!(world.text("show standard_conforming_strings").await, conforming);
    world
}

async fn pgevict(world: &World, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgevict"));
    command
        .args(args)
        .env("PGEVICT_URL", world.cluster.url())
        .stdin(Stdio::null());
    command.kill_on_drop(true).output().await.unwrap()
}

async fn ok(world: &World, args: &[&str]) -> String {
    let output = pgevict(world, args).await;
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An identifier as in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[tokio::test]
async fn c61_texts_of_an_event_arrive_as_they_are() {
    for conforming in ["on", "off"] {
        let world = world(conforming).await;
        for hostile in HOSTILE {
            let changes = json!({ hostile: { "old": hostile, "new": null } });
            let mut event = Event::new(hostile)
                .key(Key::new(hostile).unwrap())
                .tag(Tag::new(hostile).unwrap())
                .prefix(Prefix::new(hostile).unwrap())
                .changes(changes.clone());
            event.entity_type = Some(hostile.to_owned());
            event.entity_id = Some(hostile.to_owned());
            let instance = hostile.replace(char::is_control, " ");

            // By the function, by the library, and by the command.
            let sql = "select pgevict.emit(array[$1], array[$1], array[$1], $1, $1, $1, $2, $3)";
            world
                .admin
                .execute(sql, &[&hostile, &changes, &instance])
                .await
                .unwrap();
            let mut config = pgevict::Config::from_url(world.cluster.url()).unwrap();
            config.instance_id = Some(instance.clone());
            let running = pgevict::Pgevict::builder(config).start().await.unwrap();
            drop(running.emit(&world.admin, event).await.unwrap());
            running.shutdown().await;
            // A value may begin with a dash.
            let mut args = vec!["emit".to_owned(), format!("--changes={changes}")];
            for name in ["key", "tag", "prefix", "type", "entity-type", "entity-id"] {
                args.push(format!("--{name}={hostile}"));
            }
            ok(&world, &args.iter().map(String::as_str).collect::<Vec<_>>()).await;

            let rows = world
                .admin
                .query(
                    "select entity_id, changes, source from pgevict.event order by id",
                    &[],
                )
                .await
                .unwrap();
            for row in &rows {
                assert_eq!(row.get::<_, &str>(0), hostile);
                assert_eq!(row.get::<_, Value>(1), changes);
            }
            assert_eq!(rows[0].get::<_, &str>(2), instance);
            assert_eq!(rows[1].get::<_, &str>(2), instance);
            let events = world.events().await;
            assert_eq!(events.len(), 3, "{hostile}");
            for event in events {
                let expected = Logged {
                    keys: vec![hostile.into()],
                    tags: vec![hostile.into()],
                    prefixes: vec![hostile.into()],
                    kind: Some(hostile.into()),
                    entity_type: Some(hostile.into()),
                    ..event.clone()
                };
                assert_eq!(event, expected);
            }
        }
        assert_eq!(world.text("select count(*) from canary").await, "1");
    }
}

#[tokio::test]
async fn c61_names_of_tables_and_columns_are_names() {
    names_are_names("on").await;
}

#[tokio::test]
async fn c61_names_are_names_without_conforming_strings() {
    names_are_names("off").await;
}

async fn names_are_names(conforming: &str) {
    let longest = format!("{}é", "L".repeat(61));
    let names: Vec<&str> = [HOSTILE.as_slice(), &["MixedCase", " a ", "1st", "日本", &longest]].concat();
    let mut world = world(conforming).await;
    for name in &names {
        let q = quoted(name);
        let table = format!("{q}.{q}");
        world
            .run(&format!(
                "create schema {q}; create table {table} ({q} text primary key, x int)"
            ))
            .await;
        let template = format!("{name}:{{{name}}}");
        let (key, tag) = (
            format!("--key={template}"),
            format!("--tag={{schema}}/{{table}}/{name}"),
        );
        let args = [
            "watch",
            &table,
            &key,
            &tag,
            &format!("--column={name}"),
            "--column=x",
        ];
        assert!(ok(&world, &args).await.contains("is now watched"));
        assert!(ok(&world, &args).await.contains("already"));
        works(&mut world, name, &table, name).await;

        let listed: Value = serde_json::from_str(&ok(&world, &["watches", "--json"]).await).unwrap();
        let listed = &listed["watches"][0];
        assert_eq!(listed["schema"], **name);
        assert_eq!(listed["table"], **name);
        assert_eq!(listed["key"], template);
        assert_eq!(listed["columns"].as_array().unwrap().len(), 2);
        assert!(listed["columns"].as_array().unwrap().contains(&json!(name)));
        assert_eq!(listed["state"], "ok");
        // What the library lists, it takes again.
        let own = watches(&world.admin).await.unwrap().remove(0).definition;
        watch(&mut world.admin, &own, LOCK_LIMIT).await.unwrap();
        ok(&world, &["unwatch", &table]).await;
        assert!(watches(&world.admin).await.unwrap().is_empty());
    }
    // All at once; functions made anew, and all of it taken away.
    for name in &names {
        let q = quoted(name);
        let definition = WatchDefinition::new(format!("{q}.{q}")).key(format!("{name}:{{{name}}}"));
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    }
    let rebuilt = world.text("select pgevict.watch_rebuild()").await;
    assert_eq!(rebuilt, names.len().to_string());
    assert_eq!(
        world
            .text("select string_agg(distinct state, ',') from pgevict.watch_status()")
            .await,
        "ok"
    );
    ok(&world, &["uninstall", "--yes"]).await;
    assert_eq!(
        world
            .text("select count(*) from pg_trigger where not tgisinternal")
            .await,
        "0"
    );
    assert_eq!(world.text("select count(*) from canary").await, "1");
}

#[tokio::test]
async fn c61_names_that_our_own_sql_uses_clash_with_nothing() {
    let mut world = world("on").await;
    for name in CLASHING {
        let q = quoted(name);
        world
            .run(&format!("create table {q} ({q} text primary key, x int)"))
            .await;
        let definition = WatchDefinition::new(&q).key(format!("{name}:{{{name}}}"));
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
        works(&mut world, name, &q, name).await;
        unwatch(&mut world.admin, &q, LOCK_LIMIT).await.unwrap();
    }
    // All of them in one table, as templates, key and columns.
    let columns = CLASHING.map(|name| format!("{} int", quoted(name))).join(", ");
    let primary = CLASHING.map(quoted)[..32].join(", ");
    world
        .run(&format!(
            "create table every ({columns}, primary key ({primary}))"
        ))
        .await;
    let mut definition = WatchDefinition::new("every").key("every:{id}");
    for name in CLASHING {
        definition = definition.tag(format!("{name}:{{{name}}}"));
    }
    definition.columns = Some(CLASHING.map(str::to_owned).to_vec());
    watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    world.events().await;
    let values = |first: usize| {
        (first..first + CLASHING.len())
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    world
        .run(&format!(
            "insert into every values ({}), ({})",
            values(0),
            values(100)
        ))
        .await;
    assert_eq!(world.event().await.tags.len(), 2 * CLASHING.len());
    world.run("update every set v_act = 7 where v_act = 6").await;
    assert_eq!(world.event().await.tags.len(), 1 + CLASHING.len());
    world.run("update every set keys = keys").await;
    assert!(world.events().await.is_empty());
    world.run("update every set tg_op = tg_op + 1").await;
    assert_eq!(world.event().await.keys.len(), 2);
    assert_eq!(text(&world.admin, "select count(*) from canary").await, "1");
}

#[tokio::test]
async fn c61_what_is_no_name_is_refused() {
    for conforming in ["on", "off"] {
        let world = world(conforming).await;
        world.run("create table t (id int primary key)").await;
        for hostile in HOSTILE {
            let (column, key) = (format!("--column={hostile}"), format!("--key=k:{{{hostile}}}"));
            for args in [
                &["watch", "--key=k:{id}", "--", hostile][..],
                &["unwatch", "--", hostile],
                &["watch", "t", "--key=k:{id}", &column],
                &["watch", "t", &key],
                &["wake", "--", hostile],
                &["prune", &format!("--retention={hostile}")],
            ] {
                let output = pgevict(&world, args).await;
                assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
                assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
            }
        }
        assert_eq!(world.text("select count(*) from pgevict.event").await, "0");
        assert_eq!(world.text("select count(*) from canary").await, "1");
    }
}

/// One row and many, by each verb, in a table of a text key and an int x.
async fn works(world: &mut World, head: &str, table: &str, column: &str) {
    let q = quoted(column);
    let key = |id: &str| format!("{head}:{}", key!("{}", id));
    world.events().await;
    for (sql, verb, ids) in [
        (
            format!("insert into {table} values ('a', 1)"),
            "created",
            &["a"][..],
        ),
        (
            format!("insert into {table} select n, 1 from unnest(array['b', 'c', 'd:e']) n"),
            "created",
            &["b", "c", "d:e"],
        ),
        (
            format!("update {table} set x = 2 where {q} = 'a'"),
            "updated",
            &["a"],
        ),
        (
            format!("update {table} set x = x + 1"),
            "updated",
            &["a", "b", "c", "d:e"],
        ),
        (
            format!("update {table} set {q} = 'A' where {q} = 'a'"),
            "updated",
            &["A", "a"],
        ),
        (format!("update {table} set x = x"), "", &[]),
        (format!("delete from {table} where {q} = 'A'"), "deleted", &["A"]),
        (
            format!("delete from {table} where {q} < 'd'"),
            "deleted",
            &["b", "c"],
        ),
    ] {
        world.run(&sql).await;
        if ids.is_empty() {
            assert!(world.events().await.is_empty(), "{sql}");
            continue;
        }
        let event = world.event().await;
        assert_eq!(
            event.keys,
            ids.iter().map(|id| key(id)).collect::<Vec<_>>(),
            "{sql}"
        );
        let kind = event.kind.unwrap();
        assert!(kind.ends_with(verb), "{kind}");
        assert_eq!(event.prefixes, Vec::<String>::new(), "{sql}");
    }
    world.run(&format!("truncate {table}")).await;
    assert!(
        world.event().await.prefixes.contains(&format!("{head}:")),
        "{table}"
    );
    assert!(
        !world.cluster.log().contains("emits prefixes"),
        "rendering failed: {}",
        world.cluster.log()
    );
}
