//! A restore clears search_path, and a trigger function that used bare names failed there, so that no data was loaded
//! (boardsesh 4699, buzz 7272).

use std::path::PathBuf;
use std::time::Duration;

use pgevict::lab::{Cluster, ClusterOptions};
use pgevict::store::migrate::migrate;
use pgevict::{Pgevict, Reset};
use tokio_postgres::Client;

use crate::support::app::{App, PATIENCE, config, key, slow_poll};
use crate::support::{World, refusal, text};

/// What a dump has to carry: a column that is gone, so that numbers move; a type of another schema; two watches; and a
/// log with all that can be in it.
const SOURCE: &str = "create schema other; create type other.mood as enum ('so so', 'good'); \
    create table t (gone int, id int primary key, m other.mood); alter table t drop gone; \
    create table other.\"T\" (a text, b numeric, primary key (a, b)); \
    select pgevict.watch('t', 't:{id}', array['mood:{m}']), pgevict.watch('other.\"T\"', 'T:{a}:{b}'); \
    insert into t values (1, 'good'), (2, null); insert into other.\"T\" values ('a', 1.50); \
    select pgevict.emit(array['of another log']), pgevict.beat_heart('i', gen_random_uuid(), 1, pg_current_snapshot()), \
      pgevict.note_horizon('1 day'), pgevict.claim_warden('i', gen_random_uuid(), '30 s')";

/// Triggers and functions of the watches: names, owners, rights, settings, text.
const WATCHES: &str = "select string_agg(concat_ws('|', t.tgrelid::regclass, t.tgname, t.tgenabled, t.tgargs, p.proname, \
      p.proowner::regrole, p.proacl, p.prosecdef, p.proconfig, p.prosrc), '; ' order by t.tgrelid::regclass::text, t.tgname) \
    from pg_trigger t join pg_proc p on p.oid = t.tgfoid where p.proname like 'fired%'";

const STATES: &str =
    "select string_agg(concat_ws('.', schema_name, table_name, state), ',') from pgevict.watch_status()";

/// A dump of the database `postgres`.
struct Dump {
    folder: tempfile::TempDir,
}

impl Dump {
    async fn of(cluster: &Cluster, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dump");
        let args = [args, &["-f", file.to_str().unwrap()]].concat();
        let (code, said) = ran(cluster, "pg_dump", &args, "postgres").await;
        assert_eq!(code, 0, "{said}");
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("dump")
    }

    /// Restores it, which has to succeed in every part.
    async fn restore(&self, cluster: &Cluster, args: &[&str]) {
        let (code, said) = self.restored(cluster, args, "postgres").await;
        assert_eq!((code, said.as_str()), (0, ""), "{args:?}");
    }

    /// Exit code of the restore, and what it said.
    async fn restored(&self, cluster: &Cluster, args: &[&str], user: &str) -> (i32, String) {
        let file = self.file();
        let args = [args, &[file.to_str().unwrap()]].concat();
        ran(cluster, "pg_restore", &args, user).await
    }

    /// Runs it as a script, to the first error.
    async fn run_in(&self, cluster: &Cluster, database: &str) {
        let file = self.file();
        let args = [
            "-qX",
            "-v",
            "ON_ERROR_STOP=1",
            "-o",
            "/dev/null",
            "-d",
            database,
            "-f",
            file.to_str().unwrap(),
        ];
        let (code, said) = ran(cluster, "psql", &args, "postgres").await;
        assert_eq!((code, said.as_str()), (0, ""));
    }
}

async fn ran(cluster: &Cluster, program: &str, args: &[&str], user: &str) -> (i32, String) {
    let output = cluster
        .command(program)
        .args(args)
        .env("PGUSER", user)
        .output()
        .await
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

async fn source() -> World {
    let world = World::start().await;
    world.run(SOURCE).await;
    world
}

/// The watches of a restored database work: what they were, found whole, and each write is an event.
async fn watches_work(source: &World, cluster: &Cluster, database: &str) {
    let db = cluster.connect_to(database).await.unwrap();
    assert_eq!(text(&db, WATCHES).await, source.text(WATCHES).await);
    assert_eq!(text(&db, STATES).await, "other.T.ok,public.t.ok");
    let pgevict = Pgevict::builder(config(&cluster.url_for(database), "restored"))
        .start()
        .await
        .unwrap();
    // The log that came along was another one's.
    assert_eq!(text(&db, "select count(*) from pgevict.event").await, "0");
    assert_eq!(
        text(&db, "select string_agg(instance_id, ',') from pgevict.heartbeat").await,
        "restored"
    );
    let mut events = pgevict.subscribe();
    for (sql, expected) in [
        ("update t set m = 'so so' where id = 1", "t:1"),
        ("insert into other.\"T\" values ('b', 2.50), ('c', 1)", "T:b:2.5"),
        (
            "set search_path = ''; delete from other.\"T\" where a = 'b'",
            "T:b:2.5",
        ),
    ] {
        db.batch_execute(sql).await.unwrap();
        let delivery = tokio::time::timeout(PATIENCE, events.next())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(crate::support::app::keys_of(&delivery)[0], expected, "{sql}");
    }
    pgevict.shutdown().await;
}

#[tokio::test]
async fn c31_an_empty_search_path_stops_no_write() {
    let world = source().await;
    world.events().await;
    world
        .run("set search_path = ''; insert into public.t values (3, 'good')")
        .await;
    assert_eq!(world.event().await.keys, ["t:3"]);
    assert_eq!(
        world
            .text("select count(*) from pg_catalog.pg_proc where pronamespace = 'pgevict'::pg_catalog.regnamespace \
                   and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)")
            .await,
        "0"
    );
}

#[tokio::test]
async fn c31_a_full_restore_needs_no_new_install() {
    let world = source().await;
    let custom = Dump::of(&world.cluster, &["-Fc"]).await;
    let plain = Dump::of(&world.cluster, &["-Fp"]).await;

    world.cluster.create_database("by_restore").await.unwrap();
    custom.restore(&world.cluster, &["-d", "by_restore"]).await;
    watches_work(&world, &world.cluster, "by_restore").await;
    world.cluster.create_database("by_script").await.unwrap();
    plain.run_in(&world.cluster, "by_script").await;
    watches_work(&world, &world.cluster, "by_script").await;

    // Another cluster gets the roles first, as with every dump of one database.
    let other = ClusterOptions::new().start().await.unwrap();
    let roles = world
        .cluster
        .command("pg_dumpall")
        .arg("--roles-only")
        .output()
        .await
        .unwrap();
    let file = custom.folder.path().join("roles");
    std::fs::write(&file, roles.stdout).unwrap();
    ran(&other, "psql", &["-qX", "-f", file.to_str().unwrap()], "postgres").await;
    custom.restore(&other, &["-d", "postgres"]).await;
    watches_work(&world, &other, "postgres").await;
    let mut db = other.connect().await.unwrap();
    assert!(!migrate(&mut db).await.unwrap().changed);
}

#[tokio::test]
async fn c31_a_running_instance_notices_that_its_database_was_restored() {
    let world = World::start().await;
    world.cluster.create_database("app").await.unwrap();
    let set_up = async |db: &mut Client| {
        migrate(db).await.unwrap();
        db.batch_execute("create table t (id int primary key); select pgevict.watch('t', 't:{id}')")
            .await
            .unwrap();
    };
    set_up(&mut world.cluster.connect_to("app").await.unwrap()).await;
    let mut app = App::start_at(&world, &world.cluster.url_for("app"), "a", slow_poll).await;
    app.until_proved(PATIENCE).await;
    world.until_registered("app").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump");
    let file = file.to_str().unwrap();
    let (code, said) = ran(
        &world.cluster,
        "pg_dump",
        &["-Fc", "-d", "app", "-f", file],
        "postgres",
    )
    .await;
    assert_eq!(code, 0, "{said}");

    for in_place in [true, false] {
        let held = key("t:1");
        let load = app.cache.get_or_load(&held, |load| async move {
            Ok::<_, tokio_postgres::Error>(load.found("v".to_owned()))
        });
        load.await.unwrap();
        assert!(app.held("t:1").is_some());
        let clean = [
            "--clean",
            "--if-exists",
            "--single-transaction",
            "-d",
            "app",
            file,
        ];
        let anew = ["--exit-on-error", "-d", "app", file];
        if !in_place {
            world.run("drop database app with (force)").await;
            world.run("create database app").await;
        }
        let args: &[&str] = if in_place { &clean } else { &anew };
        let (code, said) = ran(&world.cluster, "pg_restore", args, "postgres").await;
        assert_eq!((code, said.as_str()), (0, ""));

        let db = world.cluster.connect_to("app").await.unwrap();
        db.batch_execute("insert into t values (1)").await.unwrap();
        app.until(|status| status.degraded.is_none(), PATIENCE).await;
        app.pgevict.sync(PATIENCE).await.unwrap();
        assert_eq!(app.held("t:1"), None, "what was held is dropped");
        let deliveries = app.deliveries().await;
        assert_eq!(App::resets(&deliveries), [Reset::Identity], "{in_place}");
        app.until_proved(PATIENCE).await;
        db.batch_execute("insert into t values (2)").await.unwrap();
        let took = app.applied("t:2").await;
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    app.pgevict.shutdown().await;
}

/// What tells whose log it is, and what is in it.
const LOG: &str = "select concat_ws('|', m.*, e.*, (select string_agg(instance_id, ',') from pgevict.heartbeat), \
      (select count(*) from pgevict.watch), (select count(*) from pgevict.warden), (select count(*) from pgevict.sweep)) \
    from pgevict.meta m, pgevict.epoch e";

/// A database with our schema and the watches installed, and no rows.
async fn installed(world: &World, database: &str) -> Client {
    world.cluster.create_database(database).await.unwrap();
    let mut db = world.cluster.connect_to(database).await.unwrap();
    migrate(&mut db).await.unwrap();
    db.batch_execute(SOURCE.split("insert into").next().unwrap())
        .await
        .unwrap();
    db
}

#[tokio::test]
async fn c31_data_alone_goes_into_an_installed_schema() {
    let world = source().await;
    let custom = Dump::of(&world.cluster, &["-Fc"]).await;
    let plain = Dump::of(&world.cluster, &["-Fp", "--data-only"]).await;
    let db = installed(&world, "target").await;
    let mut app = App::start_at(&world, &world.cluster.url_for("target"), "a", slow_poll).await;
    app.until_proved(PATIENCE).await;
    world.until_registered("target").await;
    let before = text(&db, LOG).await;

    for by_script in [false, true] {
        if by_script {
            plain.run_in(&world.cluster, "target").await;
        } else {
            custom
                .restore(&world.cluster, &["--data-only", "-d", "target"])
                .await;
        }
        assert_eq!(text(&db, LOG).await, before, "no row of another log came in");
        assert_eq!(text(&db, STATES).await, "other.T.ok,public.t.ok");
        let mut keys = app.keys().await;
        keys.sort();
        assert_eq!(
            keys,
            ["T:a:1.5", "t:1", "t:2"],
            "the rows that came are told, and nothing else"
        );
        db.batch_execute("truncate t, other.\"T\"").await.unwrap();
        app.deliveries().await;
    }

    // Without triggers nothing is told of the rows, and our own tables have to be left out.
    let args = [
        "--data-only",
        "--disable-triggers",
        "-N",
        "pgevict",
        "-d",
        "target",
    ];
    custom.restore(&world.cluster, &args).await;
    assert_eq!(text(&db, LOG).await, before);
    assert_eq!(text(&db, STATES).await, "other.T.ok,public.t.ok");
    assert!(app.keys().await.is_empty());
    db.batch_execute("update t set m = 'so so' where id = 1")
        .await
        .unwrap();
    assert_eq!(app.keys().await, ["t:1"]);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn c31_a_migration_mends_what_a_restore_without_triggers_did() {
    let world = source().await;
    let custom = Dump::of(&world.cluster, &["-Fc"]).await;
    let mut db = installed(&world, "target").await;
    let mut app = App::start_at(&world, &world.cluster.url_for("target"), "a", slow_poll).await;
    app.until_proved(PATIENCE).await;

    let args = ["--data-only", "--disable-triggers", "-d", "target"];
    let (code, said) = custom.restored(&world.cluster, &args, "postgres").await;
    assert_eq!(code, 1);
    for line in said.lines().filter(|line| line.contains("COPY failed")) {
        let own = ["epoch", "meta", "sweep", "warden", "watch"];
        assert!(
            own.iter()
                .any(|table| line.contains(&format!("table \"{table}\""))),
            "{line}"
        );
    }
    assert_eq!(
        text(&db, "select count(*) from t").await,
        "2",
        "the rows of others are there"
    );

    // What a newer binary installed is left alone.
    let newer = "update pgevict.meta set functions_version = functions_version";
    db.batch_execute(&format!("{newer} + 1")).await.unwrap();
    assert!(!migrate(&mut db).await.unwrap().changed);
    db.batch_execute(&format!("{newer} - 1")).await.unwrap();
    assert!(migrate(&mut db).await.unwrap().changed);
    assert!(!migrate(&mut db).await.unwrap().changed);
    app.pgevict.sync(PATIENCE).await.unwrap();
    let deliveries = app.deliveries().await;
    assert!(App::resets(&deliveries).contains(&Reset::Epoch), "{deliveries:?}");
    let foreign = "select count(*) from pgevict.heartbeat where instance_id = 'i'";
    assert_eq!(text(&db, foreign).await, "0");
    assert_eq!(text(&db, "select count(*) from pgevict.horizon").await, "0");
    db.batch_execute("truncate t, other.\"T\"").await.unwrap();
    custom
        .restore(&world.cluster, &["--data-only", "-d", "target"])
        .await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn c31_a_migration_fills_what_a_restore_without_data_left_empty() {
    let world = source().await;
    let dump = Dump::of(&world.cluster, &["--schema-only"]).await;
    let url = world.cluster.create_database("empty").await.unwrap();
    dump.run_in(&world.cluster, "empty").await;
    let mut db = world.cluster.connect_to("empty").await.unwrap();
    // Nothing to migrate from yet: writers go on all the same, and whoever reads is told.
    db.batch_execute("insert into t values (1, 'good')")
        .await
        .unwrap();
    let gone = "delete from pgevict.event returning keys";
    assert_eq!(text(&db, gone).await, "{t:1}");
    let error = Pgevict::builder(config(&url, "a")).start().await.err().unwrap();
    assert!(error.to_string().contains("pgevict migrate"), "{error}");

    assert!(migrate(&mut db).await.unwrap().changed);
    assert!(!migrate(&mut db).await.unwrap().changed);
    for table in ["meta", "warden", "sweep"] {
        assert_eq!(
            text(&db, &format!("select count(*) from pgevict.{table}")).await,
            "1",
            "{table}"
        );
    }
    watches_work(&world, &world.cluster, "empty").await;
}

#[tokio::test]
async fn c31_an_owner_without_rights_on_the_roles_restores_without_them() {
    let world = source().await;
    let dump = Dump::of(&world.cluster, &["-Fc"]).await;
    world
        .run("create role plain login; create role app login; grant pgevict_emitter to app")
        .await;
    world.run("create database plain owner plain").await;
    let (code, said) = dump
        .restored(
            &world.cluster,
            &["--no-owner", "--no-acl", "-d", "plain"],
            "plain",
        )
        .await;
    assert_eq!((code, said.as_str()), (0, ""));
    let mut db = world.cluster.connect_to("plain").await.unwrap();
    db.batch_execute("set session authorization plain").await.unwrap();
    assert_eq!(text(&db, STATES).await, "other.T.ok,public.t.ok");
    db.batch_execute("select pgevict.establish(); insert into t values (3, 'good')")
        .await
        .unwrap();
    assert_eq!(text(&db, "select keys from pgevict.event").await, "{t:3}");
    let owners = "select string_agg(distinct proowner::regrole::text, ',') from pg_proc where pronamespace = 'pgevict'::regnamespace";
    assert_eq!(text(&db, owners).await, "plain");

    // The rights did not come along: nobody else gets in until a migration grants them anew.
    let app = world.cluster.connect_to("plain").await.unwrap();
    app.batch_execute("set session authorization app").await.unwrap();
    let emit = "select pgevict.emit(array['a'])";
    assert_eq!(refusal(&app, emit).await.0, "42501");
    assert!(migrate(&mut db).await.unwrap().changed);
    app.batch_execute(emit).await.unwrap();
    assert_eq!(refusal(&app, "select pgevict.set_wake('off')").await.0, "42501");
    assert!(!migrate(&mut db).await.unwrap().changed);
}
