//! `pgevict watch` as a user types it: samples of existing rows before it installs, the dry run, the limit of its tries.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{ok, refused, run};
use crate::support::World;

const PRODUCTS: &str = "create table products (id int primary key, category_id int, name text, sold timestamptz); \
     insert into products select n, n % 3, 'a b', '2026-11-30 12:00:00+02' from generate_series(1, 100) n";

const WATCH: [&str; 10] = [
    "watch",
    "products",
    "--key",
    "product:{id}",
    "--tag",
    "category:{category_id}",
    "--tag",
    "on:{sold}/{name}",
    "--prefix",
    "{table}:",
];

async fn installed(world: &World) -> String {
    let triggers = "select count(*) from pg_trigger where tgrelid = 'products'::regclass";
    world.text(triggers).await
}

#[tokio::test]
async fn a_watch_shows_what_existing_rows_make_stale_before_it_is_installed() {
    let world = World::start().await;
    let url = world.cluster.url();
    world.run(PRODUCTS).await;
    world
        .run("alter role postgres set timezone = 'Asia/Kolkata'; alter role postgres set datestyle = 'SQL, DMY'")
        .await;
    let out = ok(&url, &[&WATCH[..], &["--dry-run"]].concat()).await;
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(
        lines[0],
        "products would be watched:  key product:{id}  tag category:{category_id}  tag on:{sold}/{name}  prefix {table}:"
    );
    assert_eq!(
        lines[2],
        "  key product:1  tag category:1  tag on:2026-11-30T10%3A00%3A00Z/a%20b  prefix products:"
    );
    assert_eq!(lines.len(), 7, "five rows: {out}");
    assert_eq!(installed(&world).await, "0");
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");

    let dry = ok(&url, &[&WATCH[..], &["--dry-run", "--json"]].concat()).await;
    let dry: Value = serde_json::from_str(&dry).unwrap();
    assert_eq!(dry["done"], "dry_run");
    assert_eq!(dry["definition"]["key"], "product:{id}");
    assert_eq!(dry["samples"].as_array().unwrap().len(), 5);
    assert_eq!(installed(&world).await, "0");

    let done = ok(&url, &[&WATCH[..], &["--json"]].concat()).await;
    let done: Value = serde_json::from_str(&done).unwrap();
    assert_eq!(done["done"], "installed");
    assert_eq!(done["unread"], Value::Null);
    assert_eq!(
        done["samples"][1],
        json!({
            "key": "product:2",
            "tags": ["category:2", "on:2026-11-30T10%3A00%3A00Z/a%20b"],
            "prefixes": ["products:"]
        })
    );
    // The very texts that the trigger writes.
    world.events().await;
    world.run("update products set name = 'a b ' where id = 2").await;
    let event = world.event().await;
    assert_eq!(event.keys, ["product:2"]);
    assert!(
        event
            .tags
            .contains(&"on:2026-11-30T10%3A00%3A00Z/a%20b".to_owned()),
        "{event:?}"
    );
    let out = ok(&url, &WATCH).await;
    assert!(
        out.contains("key product:1 ") && out.ends_with("products is watched so already\n"),
        "{out}"
    );

    // Long texts are cut, an empty table has none, an error is that of the watch itself.
    world
        .run("create table notes (id int primary key, t text); insert into notes values (1, repeat('x', 1000))")
        .await;
    let long = ok(&url, &["watch", "notes", "--key", "note:{t}", "--dry-run"]).await;
    assert!(long.contains(&format!("note:{}\n", "x".repeat(195))), "{long}");
    world.run("truncate notes").await;
    let none = ok(&url, &["watch", "notes", "--tag", "note:{t}"]).await;
    assert_eq!(none, "notes has no rows yet: no samples\nnotes is now watched\n");
    let wrong = ["watch", "notes", "--key", "note:{missing}", "--dry-run"];
    refused(&url, &wrong, 2, &["missing", "columns"]).await;
}

#[tokio::test]
async fn without_samples_the_watch_is_installed_all_the_same() {
    let world = World::start().await;
    world.run(PRODUCTS).await;
    world
        .run(
            "create role owner login in role pgevict_admin; alter table products owner to owner; \
             revoke select on products from owner",
        )
        .await;
    let url = world.cluster.url().replace("postgres@", "owner@");
    let out = ok(&url, &WATCH).await;
    assert!(
        out.starts_with("no samples: ") && out.contains("permission denied"),
        "{out}"
    );
    assert!(out.ends_with("products is now watched\n"), "{out}");
    let again = ok(&url, &[&WATCH[..], &["--json"]].concat()).await;
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["samples"], json!([]));
    assert!(
        again["unread"].as_str().unwrap().contains("permission denied"),
        "{again}"
    );
    assert_eq!(again["done"], "unchanged");
}

#[tokio::test]
async fn the_lock_limit_ends_the_tries() {
    let world = World::start().await;
    let url = world.cluster.url();
    world.run(PRODUCTS).await;
    let writer = world.cluster.connect().await.unwrap();
    writer
        .batch_execute("begin; update products set name = 'x' where id = 1")
        .await
        .unwrap();
    let began = Instant::now();
    let ran = run(&url, &[&WATCH[..], &["--lock-limit", "500ms"]].concat()).await;
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(
        ran.err.contains("stayed locked") && ran.err.contains("process"),
        "{}",
        ran.err
    );
    // The samples could be read: a writer does not keep readers out.
    assert!(ran.out.contains("key product:"), "{}", ran.out);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    writer.batch_execute("rollback").await.unwrap();
    // Whoever keeps readers out keeps the watch out too.
    writer.batch_execute("begin; lock table products").await.unwrap();
    let ran = run(&url, &[&WATCH[..], &["--lock-limit", "500ms"]].concat()).await;
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.out.starts_with("no samples: "), "{}", ran.out);
    writer.batch_execute("rollback").await.unwrap();
    ok(&url, &[&WATCH[..], &["--lock-limit", "30s"]].concat()).await;
    writer.batch_execute("begin; lock table products").await.unwrap();
    for command in [&["unwatch", "products"][..], &["uninstall", "--yes"]] {
        let ran = run(&url, &[command, &["--lock-limit", "300ms"]].concat()).await;
        assert_eq!(ran.code, 5, "{command:?}: {}", ran.err);
    }
    writer.batch_execute("rollback").await.unwrap();
    for bad in ["soon", "1ms", "2h"] {
        let arguments = [&WATCH[..], &["--lock-limit", bad]].concat();
        refused(&url, &arguments, 2, &["lock_limit"]).await;
    }
    ok(&url, &["unwatch", "products", "--lock-limit", "30s"]).await;
}
