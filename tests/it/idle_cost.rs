//! What an instance costs the server while nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use pgevict::lab::ClusterOptions;

use crate::support::World;
use crate::support::app::{App, PATIENCE};

/// How long it is watched: short in CI, 60 s when asked. More than the longest pause of all that is sent, but chores.
fn window() -> Duration {
    let seconds = std::env::var("PGEVICT_IDLE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(13))
}

/// What one session may send, by a text that names it, and the pause between two of them.
type Allowed = &'static [(&'static str, Duration)];

const EVERY_INSTANCE: Allowed = &[
    ("pg_current_snapshot()", Duration::from_millis(500)),
    ("pgevict.beat_heart", Duration::from_secs(10)),
    ("pgevict.claim_warden", Duration::from_secs(10)),
    ("pg_notify", Duration::from_secs(5)),
];

/// Pause between claims of the warden here.
const CLAIM: Duration = Duration::from_secs(2);

const WARDEN: Allowed = &[
    ("pgevict.check_watches", Duration::from_secs(5)),
    ("pgevict.claim_warden", CLAIM),
    ("pgevict.note_horizon", Duration::from_secs(60)),
    ("pgevict.prune", Duration::from_secs(60)),
];

impl World {
    /// A server that logs each statement, with a watched table.
    async fn that_logs() -> Self {
        let options = ClusterOptions::new()
            .setting("log_statement", "all")
            .setting("log_line_prefix", "<%a> ");
        let world = Self::with(options).await;
        world
            .run("create table products (id int primary key); select pgevict.watch('products', 'product:{id}')")
            .await;
        world
    }

    /// The rows of these tables: none can be written without a trace, by whatever session.
    async fn rows(&self, tables: &[&str]) -> String {
        let rows = tables
            .iter()
            .map(|table| format!("select '{table}' as name, xmin::text || ctid as row from {table}"));
        let all = rows.collect::<Vec<_>>().join(" union all ");
        self.text(&format!(
            "select string_agg(name || row, ' ' order by name, row) from ({all}) r"
        ))
        .await
    }
}

/// What nobody writes while nothing happens.
const UNWRITTEN: [&str; 7] = [
    "pgevict.event",
    "pgevict.meta",
    "pgevict.epoch",
    "pgevict.watch",
    "pgevict.checked",
    "pgevict.sweep",
    "products",
];

/// What the warden alone writes.
const OF_THE_WARDEN: [&str; 2] = ["pgevict.warden", "pgevict.horizon"];

/// Counts the statements of one kind of session by what they are, and holds them against what is allowed.
fn count(log: &str, session: &str, allowed: Allowed) -> usize {
    let mut counts = BTreeMap::new();
    let prefix = format!("<pgevict/{session}/");
    for line in log.lines() {
        let sends = line.contains("LOG:  statement: ") || line.contains("LOG:  execute ");
        if !line.starts_with(&prefix) || !sends {
            continue;
        }
        // What does not fit on the line is the fetch.
        let known = allowed.iter().find(|(name, _)| line.contains(name));
        let name = match known {
            Some((name, _)) => *name,
            None if line.trim_end().ends_with(':') => allowed[0].0,
            None => panic!("{session} sends what is not allowed: {line}"),
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    println!("{session}: {counts:?}");
    for (name, pause) in allowed {
        let most = window().as_millis() / pause.as_millis() + 2;
        let sent = counts.get(name).copied().unwrap_or(0);
        assert!(sent as u128 <= most, "{session}: {name} {sent} times");
    }
    counts.values().sum()
}

#[tokio::test]
async fn an_idle_instance_sends_two_and_a_half_statements_a_second_and_writes_heartbeats_only() {
    let world = World::that_logs().await;
    world
        .run("select pgevict.claim_warden('other', gen_random_uuid(), '1h')")
        .await;
    let app = App::start(&world, "a", |_| ()).await;
    app.until_proved(PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let unwritten = [&UNWRITTEN[..], &OF_THE_WARDEN].concat();
    let before = world.rows(&unwritten).await;
    let mark = world.cluster.log().len();
    tokio::time::sleep(window()).await;
    let log = world.cluster.log()[mark..].to_owned();
    let sent = count(&log, "fetch", EVERY_INSTANCE) + count(&log, "listen", EVERY_INSTANCE);
    // Of what comes every few seconds a short window may hold one too many.
    let most = 2.5 * window().as_secs_f64() + 2.0;
    println!("{:.2} statements a second", sent as f64 / window().as_secs_f64());
    assert!(sent as f64 <= most, "{sent} statements, more than {most}");
    assert!(log.contains("claim_warden"), "{log}");
    assert_eq!(world.rows(&unwritten).await, before);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn an_idle_warden_sends_its_claim_checks_and_chores_besides_and_writes_its_lease_and_horizons_only() {
    let world = World::that_logs().await;
    // With the pauses of a real one, but that the election comes soon.
    let app = App::start(&world, "a", |config| config.warden.claim = CLAIM).await;
    app.until(|status| status.watches_not_whole == Some(0), PATIENCE)
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.rows(&UNWRITTEN).await;
    let mark = world.cluster.log().len();
    tokio::time::sleep(window()).await;
    let log = world.cluster.log()[mark..].to_owned();
    let more = count(&log, "warden", WARDEN);
    println!(
        "{:.2} statements a second more",
        more as f64 / window().as_secs_f64()
    );
    count(&log, "fetch", EVERY_INSTANCE);
    assert!(log.contains("check_watches"), "{log}");
    assert_eq!(world.rows(&UNWRITTEN).await, before);
    app.pgevict.shutdown().await;
}
