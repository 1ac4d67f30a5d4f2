//! `pgevict doctor`: each fault made for real, and named; and what it does not see it does not call good.

use pgevict::lab::{Bouncer, Cluster, ClusterOptions, PoolMode};
use serde_json::Value;
use tokio::process::Command;

use crate::cli::{Ran, command, ok, run};
use crate::support::World;
use crate::support::app::App;

/// All that is checked.
const CHECKS: [&str; 11] = [
    "addresses",
    "listen path",
    "server",
    "schema",
    "rights",
    "announcing",
    "NOTIFY queue",
    "NOTIFY lock",
    "transactions",
    "watches",
    "log",
];

pub(crate) struct Doctor {
    pub(crate) code: i32,
    pub(crate) report: Value,
}

impl Doctor {
    pub(crate) async fn asked(url: &str, args: &[&str]) -> Self {
        let args: Vec<_> = ["doctor", "--json"].iter().chain(args).copied().collect();
        Self::of(run(url, &args).await)
    }

    async fn over(url: &str, listen_url: &str) -> Self {
        let mut command = command(url, &["doctor", "--json"]);
        Self::of(output(command.env("PGEVICT_LISTEN_URL", listen_url)).await)
    }

    fn of(ran: Ran) -> Self {
        let report = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
        Self {
            code: ran.code,
            report,
        }
    }

    fn list(&self, of: &str, field: &str) -> Vec<String> {
        let list = self.report[of].as_array().unwrap().iter();
        list.map(|one| if field.is_empty() { one } else { &one[field] })
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let faults = findings.filter(|one| one["level"] == "fault");
        faults
            .map(|one| one["code"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn codes(&self) -> Vec<String> {
        self.list("findings", "code")
    }

    pub(crate) fn ok(&self) -> Vec<String> {
        self.list("ok", "")
    }

    pub(crate) fn not_checked(&self) -> Vec<String> {
        self.list("not_checked", "check")
    }

    /// The finding of this code; each has all of its texts.
    pub(crate) fn finding(&self, code: &str) -> String {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let found = findings.into_iter().find(|one| one["code"] == code);
        let found = found.unwrap_or_else(|| panic!("no {code}: {}", self.report));
        for part in ["what", "why", "cure"] {
            assert!(
                found[part].as_str().is_some_and(|text| text.len() > 10),
                "{found}"
            );
        }
        format!("{} -> {}", found["what"], found["cure"])
    }

    /// This is the one fault, and everything was checked.
    #[track_caller]
    pub(crate) fn only(&self, code: &str) -> String {
        assert_eq!(self.faults(), [code], "{}", self.report);
        assert_eq!(self.code, 1);
        assert!(self.not_checked().is_empty(), "{}", self.report);
        self.finding(code)
    }
}

async fn output(command: &mut Command) -> Ran {
    let output = command.output().await.unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn doctor_finds_nothing_where_all_is_well_and_writes_nothing() {
    let world = World::with_kv().await;
    let url = world.cluster.url();
    ok(&url, &["watch", "kv", "--key", "kv:{k}"]).await;
    let app = App::start(&world, "app-1", |_| {}).await;
    world.until_heartbeats(1).await;
    let well = Doctor::asked(&url, &[]).await;
    assert_eq!(
        (well.code, well.ok()),
        (0, CHECKS.map(str::to_owned).to_vec()),
        "{}",
        well.report
    );
    assert_eq!(well.report["place"]["role"], "postgres");
    app.pgevict.shutdown().await;

    // Who reads is enough. Others' sessions are not shown to him: not checked, not good.
    world
        .run("create role watcher login; grant pgevict_reader to watcher")
        .await;
    let url = format!("postgresql://watcher@{}/postgres", world.cluster.address());
    let next = "select pg_snapshot_xmax(pg_current_snapshot())::text::int8";
    let before: i64 = world.text(next).await.parse().unwrap();
    let other = world.cluster.connect().await.unwrap();
    other
        .batch_execute("begin; insert into kv values ('x', 'y')")
        .await
        .unwrap();
    let seen = Doctor::asked(&url, &[]).await;
    // Two transactions with an id: that one, and the probe.
    let after: i64 = world.text(next).await.parse().unwrap();
    assert!(after - before <= 2, "{before} {after}");
    assert_eq!(seen.code, 0, "{}", seen.report);
    assert_eq!(seen.codes(), ["no-right-to-prune", "no-right-to-emit"]);
    assert_eq!(seen.not_checked(), ["transactions", "watches"], "{}", seen.report);
    assert!(!seen.ok().contains(&"transactions".to_owned()));
    other.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn doctor_names_what_is_wrong_with_the_addresses() {
    let world = World::start().await;
    let url = world.cluster.url();

    let pooler = Bouncer::before(&world.cluster, PoolMode::Transaction)
        .await
        .unwrap();
    let pooled = pooler.url(&world.cluster);
    let found = Doctor::over(&url, &pooled).await.only("pooler-on-listen-url");
    assert!(found.contains("listen_url"), "{found}");
    // There it belongs.
    let well = Doctor::over(&pooled, &url).await;
    assert_eq!((well.code, well.faults()), (0, vec![]), "{}", well.report);

    // Where nobody listens there is no way to try.
    let polling =
        Doctor::of(output(command(&url, &["doctor", "--json"]).env("PGEVICT_WAKE__LISTEN", "false")).await);
    assert_eq!(
        (polling.code, polling.not_checked()),
        (0, vec!["listen path".to_owned()])
    );

    let elsewhere = world.cluster.create_database("elsewhere").await.unwrap();
    Doctor::over(&elsewhere, &url).await.only("two-servers");

    let gone = "postgresql://postgres@127.0.0.1:9/postgres";
    let half = Doctor::over(gone, &url).await;
    assert_eq!(
        (half.code, half.faults()),
        (3, vec!["unreachable".to_owned()]),
        "{}",
        half.report
    );
    assert_eq!(half.not_checked(), ["listen path"]);
    assert_eq!(run(gone, &["doctor"]).await.code, 3);

    let standby = world.cluster.standby().await.unwrap();
    let found = Doctor::asked(&standby.url(), &[]).await;
    assert_eq!(found.code, 1);
    assert!(found.faults().contains(&"standby".to_owned()), "{}", found.report);
    assert!(found.not_checked().contains(&"listen path".to_owned()));
    let both = format!("postgresql://postgres@{a},{a}/postgres", a = standby.address());
    assert_eq!(Doctor::asked(&both, &[]).await.faults(), ["standby"]);
}

#[tokio::test]
async fn doctor_names_what_is_wrong_with_the_installation() {
    let world = World::start().await;
    let url = world.cluster.url();
    let bare = world.cluster.create_database("bare").await.unwrap();
    let found = Doctor::asked(&bare, &[]).await;
    assert_eq!(
        (found.code, found.faults()),
        (1, vec!["not-installed".to_owned()])
    );
    assert!(found.finding("not-installed").contains("pgevict migrate"));
    assert_eq!(found.not_checked(), ["rights", "announcing", "watches", "log"]);

    world
        .run("update pgevict.meta set functions_checksum = 'other'")
        .await;
    assert!(
        Doctor::asked(&url, &[])
            .await
            .only("schema-older")
            .contains("pgevict migrate")
    );
    world
        .run("update pgevict.meta set schema_version = schema_version + 1")
        .await;
    let newer = Doctor::asked(&url, &[]).await;
    assert_eq!((newer.code, newer.codes()), (0, vec!["schema-newer".to_owned()]));
    world
        .run("update pgevict.meta set least_reader = schema_version")
        .await;
    Doctor::asked(&url, &[]).await.only("binary-too-old");
    world
        .run("update pgevict.meta set schema_version = schema_version - 1, least_reader = 1")
        .await;
    ok(&url, &["migrate"]).await;
    world
        .run("update pgevict.meta set functions_version = 0, functions_checksum = ''")
        .await;
    ok(&url, &["migrate"]).await;

    world.run("create role stranger login").await;
    let stranger = format!("postgresql://stranger@{}/postgres", world.cluster.address());
    let found = Doctor::asked(&stranger, &[]).await;
    assert_eq!(
        (found.code, found.faults()),
        (1, vec!["no-right-to-read".to_owned()])
    );
    assert!(
        found
            .finding("no-right-to-read")
            .contains("grant pgevict_instance to \\\"stranger\\\"")
    );
    let not_checked = found.not_checked();
    for check in ["schema", "announcing", "watches", "log"] {
        assert!(not_checked.contains(&check.to_owned()), "{not_checked:?}");
    }

    world
        .run("create table gone (id int); create table bent (id int)")
        .await;
    ok(&url, &["watch", "gone", "--key", "gone:{id}"]).await;
    ok(&url, &["watch", "bent", "--key", "bent:{id}"]).await;
    world
        .run("drop table gone; alter table bent disable trigger pgevict_update")
        .await;
    let found = Doctor::asked(&url, &[]).await;
    assert_eq!(
        found.faults(),
        ["watch-drifted", "watch-missing"],
        "{}",
        found.report
    );
    assert!(found.finding("watch-missing").contains("public.gone"));
    assert!(found.finding("watch-missing").contains("the table was dropped"));
    assert!(
        found
            .finding("watch-drifted")
            .contains("disabled: pgevict_update")
    );
    world.run("drop table bent").await;
    ok(&url, &["unwatch", "bent"]).await;
    ok(&url, &["unwatch", "gone"]).await;

    // Partitions that came or went since the watch: it goes on, and says what it does not see.
    world
        .run(
            "create table parts (id int) partition by range (id); \
             create table parts_1 partition of parts for values from (1) to (10)",
        )
        .await;
    ok(&url, &["watch", "parts", "--key", "part:{id}"]).await;
    assert_eq!(Doctor::asked(&url, &[]).await.codes(), Vec::<String>::new());
    world
        .run("create table parts_2 partition of parts for values from (10) to (20)")
        .await;
    let found = Doctor::asked(&url, &[]).await;
    assert_eq!(
        (found.code, found.codes()),
        (0, vec!["partition-after-watch".to_owned()])
    );
    assert!(found.finding("partition-after-watch").contains("parts_2"));
    ok(&url, &["watch", "parts", "--key", "part:{id}"]).await;
    assert_eq!(Doctor::asked(&url, &[]).await.codes(), Vec::<String>::new());
    ok(&url, &["unwatch", "parts"]).await;

    // The log: an old event, and nobody who prunes; then somebody, and still not pruned.
    ok(&url, &["emit", "--key", "old"]).await;
    world
        .run("update pgevict.event set created_at = created_at - interval '2 hours'")
        .await;
    assert!(
        Doctor::asked(&url, &[])
            .await
            .only("log-grows")
            .contains("pgevict prune")
    );
    world
        .run(
            "update pgevict.warden set instance_id = 'w', process = gen_random_uuid(), renewed_at = clock_timestamp(), \
             lease = '1 h'; insert into pgevict.heartbeat (instance_id, process, sequence, cursor) \
             values ('slow-one', gen_random_uuid(), 1, pg_current_snapshot())",
        )
        .await;
    assert!(
        Doctor::asked(&url, &[])
            .await
            .only("log-pinned")
            .contains("slow-one")
    );
    world.run("delete from pgevict.event").await;
    world
        .run("alter table pgevict.event set (autovacuum_enabled = off)")
        .await;
    Doctor::asked(&url, &[]).await.only("autovacuum-off");
}

#[tokio::test]
async fn doctor_names_what_replication_takes_along_or_leaves_out() {
    let options = ClusterOptions::new()
        .setting("wal_level", "logical")
        .setting("allow_system_table_mods", "on");
    let world = World::with(options).await;
    let url = world.cluster.url();
    for (made, words) in [
        ("everything for all tables", "FOR ALL TABLES"),
        (
            "of_schema for tables in schema pgevict",
            "drop tables in schema pgevict",
        ),
        (
            "of_table for table pgevict.event",
            "alter publication \\\"of_table\\\"",
        ),
    ] {
        world.run(&format!("create publication {made}")).await;
        let found = Doctor::asked(&url, &[]).await.only("publication-takes-log");
        assert!(found.contains(words), "{found}");
        let name = made.split(' ').next().unwrap();
        world.run(&format!("drop publication {name}")).await;
    }

    // A subscription to another database of this cluster: its slot is made first, or creating it waits for itself.
    world.cluster.create_database("source").await.unwrap();
    let source = world.cluster.connect_to("source").await.unwrap();
    source
        .batch_execute("create table items (id int primary key); create publication p for table items")
        .await
        .unwrap();
    let slot = "select pg_create_logical_replication_slot('s', 'pgoutput')";
    source.simple_query(slot).await.unwrap();
    world.run("create table items (id int primary key)").await;
    let subscribe = format!(
        "create subscription s connection 'host={} port={} user=postgres dbname=source' publication p \
         with (create_slot = false, slot_name = 's', enabled = false)",
        world.cluster.socket_dir().display(),
        world.cluster.port()
    );
    world.run(&subscribe).await;
    assert_eq!(Doctor::asked(&url, &[]).await.code, 0);
    ok(&url, &["watch", "items", "--key", "item:{id}"]).await;
    let found = Doctor::asked(&url, &[]).await.only("subscription-skips-watch");
    assert!(found.contains("public.items"), "{found}");
    ok(&url, &["unwatch", "items"]).await;

    world
        .run("create function pg_catalog.aurora_version() returns text language sql as $$ select '16.1' $$")
        .await;
    let doctor = Doctor::asked(&url, &[]).await;
    assert_eq!((doctor.code, doctor.codes()), (0, vec!["aurora".to_owned()]));
}

#[tokio::test]
async fn doctor_tells_people_in_words() {
    let cluster = Cluster::start().await.unwrap();
    let sick = run(&cluster.url(), &["doctor"]).await;
    assert_eq!(sick.code, 1);
    for line in [
        "database postgres on PostgreSQL",
        "FOUND  not-installed",
        "cure: pgevict migrate",
        "ok: ",
    ] {
        assert!(sick.out.contains(line), "{}", sick.out);
    }
    ok(&cluster.url(), &["migrate"]).await;
    let well = ok(&cluster.url(), &["doctor"]).await;
    assert!(!well.contains("FOUND") && !well.contains("not checked"), "{well}");
    println!("{}{well}", sick.out);
}
