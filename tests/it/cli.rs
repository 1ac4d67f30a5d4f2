//! The command as a user types it: what it prints, how it exits, and how it refuses.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::World;
use crate::support::app::PATIENCE;

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgevict"));
    command
        .args(args)
        .env_clear()
        .envs(
            std::env::vars()
                .filter(|(name, _)| matches!(name.as_str(), "PATH" | "PG_BIN_DIR" | "HOME" | "TMPDIR")),
        )
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if !url.is_empty() {
        command.env("PGEVICT_URL", url);
    }
    command
}

pub(crate) async fn run(url: &str, args: &[&str]) -> Ran {
    let output = timeout(Duration::from_secs(90), command(url, args).output())
        .await
        .unwrap_or_else(|_| panic!("{args:?} hangs"))
        .unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) async fn ok(url: &str, args: &[&str]) -> String {
    let ran = run(url, args).await;
    assert_eq!(ran.code, 0, "{args:?}: {}{}", ran.out, ran.err);
    ran.out
}

/// The command is refused with this code, the message has all these words, and nothing is printed to stdout.
pub(crate) async fn refused(url: &str, args: &[&str], code: i32, words: &[&str]) {
    let ran = run(url, args).await;
    assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
    for word in words {
        assert!(
            ran.err.contains(word),
            "{args:?} does not say {word:?}: {}",
            ran.err
        );
    }
    assert_eq!(ran.out, "", "{args:?}");
}

#[tokio::test]
async fn prune_from_cron_removes_what_an_earlier_run_saw() {
    let world = World::start().await;
    let url = world.cluster.url();
    ok(&url, &["emit", "--key", "old"]).await;
    assert!(
        ok(&url, &["prune"])
            .await
            .contains("pruned 0 events older than 1h")
    );
    ok(&url, &["emit", "--key", "young"]).await;
    world
        .run("update pgevict.horizon set taken_at = taken_at - interval '30 minutes'")
        .await;
    assert!(ok(&url, &["prune"]).await.contains("pruned 0 events"));
    let pruned: Value =
        serde_json::from_str(&ok(&url, &["prune", "--retention", "20m", "--json"]).await).unwrap();
    assert_eq!(pruned["deleted"], 1);
    assert_eq!(
        world
            .text("select string_agg(keys::text, '') from pgevict.event")
            .await,
        "{young}"
    );
    let bare = world.cluster.create_database("bare").await.unwrap();
    refused(&bare, &["prune"], 4, &["pgevict migrate"]).await;
    assert_eq!(run(&url, &["prune", "--retention", "soon"]).await.code, 2);
}

#[tokio::test]
async fn from_nothing_to_a_followed_event() {
    let world = World::start().await;
    let url = world.cluster.create_database("shop").await.unwrap();
    let db = world.cluster.connect_to("shop").await.unwrap();
    assert!(ok(&url, &["migrate"]).await.contains("installed"));
    assert!(ok(&url, &["migrate"]).await.contains("up to date"));
    db.batch_execute("create table products (id int primary key, category_id int, price int)")
        .await
        .unwrap();
    assert!(ok(&url, &["watches"]).await.contains("no table is watched"));
    let watch = [
        "watch",
        "products",
        "--key",
        "product:{id}",
        "--tag",
        "category:{category_id}",
    ];
    assert!(ok(&url, &watch).await.contains("is now watched"));
    assert!(ok(&url, &watch).await.contains("already"));
    let watches: Value = serde_json::from_str(&ok(&url, &["watches", "--json"]).await).unwrap();
    assert_eq!(watches["watches"][0]["table"], "products");
    assert_eq!(watches["watches"][0]["state"], "ok");

    let mut tail = command(&url, &["tail", "--json", "--prefix", "product:", "--count", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // It follows once its heartbeat is in the log.
    timeout(PATIENCE, async {
        loop {
            let row = db
                .query_one("select count(*) from pgevict.heartbeat", &[])
                .await
                .unwrap();
            if row.get::<_, i64>(0) == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    ok(&url, &["emit", "--key", "other:1"]).await;
    db.batch_execute("insert into products values (42, 7, 100)")
        .await
        .unwrap();
    let emit = [
        "emit",
        "--key",
        "product:1",
        "--type",
        "product.updated",
        "--entity-type",
        "product",
        "--entity-id",
        "1",
    ];
    ok(
        &url,
        &[&emit[..], &["--changes", r#"{"price": {"old": 1, "new": 2}}"#]].concat(),
    )
    .await;
    let mut next = async || -> Value {
        let line = timeout(PATIENCE, lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let first = next().await;
    assert_eq!(first["keys"], serde_json::json!(["product:42"]));
    assert_eq!(first["tags"], serde_json::json!(["category:7"]));
    assert_eq!(first["type"], "products.created");
    let second = next().await;
    assert_eq!(second["changes"]["price"]["new"], 2);
    assert_eq!(second["entity_id"], "1");
    assert!(timeout(PATIENCE, tail.wait()).await.unwrap().unwrap().success());

    assert!(ok(&url, &["flush"]).await.contains("flush emitted"));
    assert!(ok(&url, &["unwatch", "products"]).await.contains("no longer"));
    assert!(ok(&url, &["wake", "commit"]).await.contains("commit"));
    assert!(ok(&url, &["uninstall", "--yes"]).await.contains("removed"));
    let left = db
        .query_one("select count(*) from pg_namespace where nspname = 'pgevict'", &[])
        .await;
    assert_eq!(left.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn bad_input_is_told_with_the_field_and_the_cure_and_changes_nothing() {
    let world = World::start().await;
    world
        .run("create table products (id int primary key, name text); create view shown as select * from products")
        .await;
    let url = world.cluster.url();
    let watch = |table, key| ["watch", table, "--key", key];
    refused(&url, &watch("nowhere", "n:{id}"), 2, &["nowhere"]).await;
    refused(
        &url,
        &watch("products", "p:{missing}"),
        2,
        &["missing", "id", "name"],
    )
    .await;
    refused(&url, &watch("pgevict.event", "e:{id}"), 2, &["pgevict"]).await;
    refused(&url, &watch("shown", "s:{id}"), 2, &["view"]).await;
    refused(&url, &watch("products", "{id}"), 2, &["flush_ok"]).await;
    refused(&url, &["emit"], 2, &["key"]).await;
    refused(&url, &["emit", "--key", "k", "--changes", "{"], 2, &["--changes"]).await;
    refused(&url, &["emit", "--prefix", ""], 2, &["prefix", "flush"]).await;
    refused(&url, &["wake", "loud"], 2, &["loud", "adaptive"]).await;
    refused(&url, &["uninstall"], 2, &["--yes"]).await;
    assert_eq!(world.text("select count(*) from pgevict.watch").await, "0");
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "[cache]\ntttl = \"1m\"\n[feed]\npoll = \"250\"\n").unwrap();
    let file = file.to_str().unwrap();
    let words = ["tttl", "ttl", "poll", "250ms", ":2", ":4"];
    refused(&url, &["--config", file, "watches"], 2, &words).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_used_has_its_exit_code() {
    let world = World::start().await;
    refused("", &["watches"], 2, &["--url", "PGEVICT_URL"]).await;
    refused(
        "postgresql://me@127.0.0.1:1/db",
        &["watches"],
        3,
        &["127.0.0.1:1"],
    )
    .await;
    refused("postgresql://me@127.0.0.1:1/db", &["tail"], 3, &["127.0.0.1:1"]).await;
    refused(&world.cluster.url_for("nowhere"), &["watches"], 2, &["nowhere"]).await;
    let bare = world.cluster.create_database("bare").await.unwrap();
    refused(&bare, &["watches"], 4, &["pgevict migrate"]).await;

    let options = pgevict::lab::ClusterOptions::new().password("right");
    let guarded = World::with(options).await;
    let url = format!(
        "postgresql://postgres:s3cret@127.0.0.1:{}/postgres",
        guarded.cluster.port()
    );
    let ran = run(&url, &["watches"]).await;
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(
        ran.err.contains("password") && !ran.err.contains("s3cret"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let world = World::start().await;
    let shell = format!("{} migrate --print | head -1", env!("CARGO_BIN_EXE_pgevict"));
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &shell])
        .env("PGEVICT_URL", world.cluster.url())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// The summary of a demo: the last line of its output.
fn summary(out: &str) -> Value {
    serde_json::from_str(out.trim_end().lines().last().unwrap())
        .unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn assert_clean(summary: &Value, faults: u64) {
    for (field, expected) in [
        ("instances", 3),
        ("stale_reads", 0),
        ("lost", 0),
        ("faults", faults),
    ] {
        assert_eq!(summary[field], expected, "{field} of {summary}");
    }
    for field in ["events", "hits"] {
        assert!(summary[field].as_u64().unwrap() > 100, "{field} of {summary}");
    }
    for field in ["p50_ms", "p99_ms", "max_ms", "max_stale_ms"] {
        assert!(summary[field].as_f64().is_some(), "{field} of {summary}");
    }
}

#[tokio::test]
async fn the_demo_survives_its_faults_on_a_cluster_of_its_own() {
    let out = ok("", &["demo", "--for", "6s", "--json"]).await;
    assert_clean(&summary(&out), 3);
    assert_eq!(out.matches("RECOVERED").count(), 3, "{out}");
}

#[tokio::test]
async fn the_demo_leaves_nothing_behind_on_a_database_of_the_users() {
    let world = World::start().await;
    let url = world.cluster.create_database("theirs").await.unwrap();
    let out = ok("", &["--url", &url, "demo", "--for", "4s", "--json"]).await;
    assert_clean(&summary(&out), 2);
    let db = world.cluster.connect_to("theirs").await.unwrap();
    let left = db
        .query_one(
            "select count(*) from pg_namespace where nspname in ('pgevict', 'pgevict_demo')",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(left.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_demo_that_is_interrupted_while_it_starts_leaves_nothing_behind() {
    let world = World::start().await;
    let url = world.cluster.create_database("theirs").await.unwrap();
    let db = world.cluster.connect_to("theirs").await.unwrap();
    let schemas = async || {
        let count = "select count(*) from pg_namespace where nspname in ('pgevict', 'pgevict_demo')";
        db.query_one(count, &[]).await.unwrap().get::<_, i64>(0)
    };
    let demo = command("", &["--url", &url, "demo"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = demo.id().unwrap();
    timeout(PATIENCE, async { while schemas().await == 0 {} })
        .await
        .unwrap();
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    let output = timeout(PATIENCE, demo.wait_with_output())
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(schemas().await, 0);
}
