//! Rolling deployments: a binary with the schema of an older one, and with that of a newer one.

use std::process::Stdio;
use std::time::Duration;

use pgevict::Pgevict;
use pgevict::store::migrate::{SchemaVersion, installed, migrate};
use tokio::time::{sleep, timeout};

use crate::cli::{command, ok, refused};
use crate::support::app::{App, PATIENCE, config};
use crate::support::{World, text};

/// What `pgevict migrate --print` printed when the schema had version 2 and its functions version 4.
const SCHEMA_2: &str = include_str!("../fixtures/schema_2_functions_4.sql");

/// What the next version might do: a column, a function, another body; and it says so.
const NEXT: &str = "begin; set local role pgevict_owner; \
     alter table pgevict.event add column hint text; \
     create function pgevict.next() returns int language sql set search_path = pg_catalog, pg_temp as 'select 1'; \
     create or replace function pgevict.announce() returns \"char\" language sql volatile security definer \
       set search_path = pg_catalog, pg_temp as \
       $$ /* next */ select case when pg_notify('pgevict', '') is null then '-' else 'n' end::\"char\" $$; \
     update pgevict.meta set schema_version = schema_version + 1, functions_version = functions_version + 1, \
       functions_checksum = 'next'; \
     commit";

async fn version(world: &World) -> SchemaVersion {
    installed(&world.admin).await.unwrap().unwrap()
}

/// An instance that stands for election at once, so that the chores run too.
async fn start(world: &World, name: &str) -> App {
    App::start(world, name, |config| {
        config.warden.claim = Duration::from_secs(1);
        config.warden.chores = Duration::from_secs(1);
    })
    .await
}

/// A value, changed by a writer and by a watched table, reaches the cache; so does an emit of the library.
async fn works(world: &World, app: &mut App, round: &str) {
    let (by_emit, by_watch) = (format!("v-{round}"), format!("w-{round}"));
    app.get("k").await;
    world.set("k", &by_emit).await;
    app.event_for("k", PATIENCE).await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    assert_eq!(app.held("k"), None, "{round}");
    assert_eq!(app.get("k").await.as_deref(), Some(by_emit.as_str()));
    assert_eq!(
        app.held("k").as_deref(),
        Some(by_emit.as_str()),
        "{round}: not kept"
    );

    world
        .run(&format!("update watched set v = '{by_watch}' where id = 1"))
        .await;
    app.event_for("watched:1", PATIENCE).await;

    let event = pgevict::Event::default().key(crate::support::app::key("k"));
    let mut db = world.cluster.connect().await.unwrap();
    let emitted: Result<_, Box<dyn std::error::Error + Send + Sync>> = app
        .pgevict
        .transaction(&mut db, async |tx| Ok(tx.emit(event).await?))
        .await;
    emitted.unwrap();
    assert_eq!(app.held("k"), None, "{round}");
}

async fn watched(world: &World) {
    world.make_kv().await;
    world
        .run(
            "create table watched (id int primary key, v text); insert into watched values (1, 'w0'); \
             select pgevict.watch('watched', key => 'watched:{id}')",
        )
        .await;
}

/// A view of a DBA's, and rights that he granted, outlive the functions' being applied anew.
#[tokio::test]
async fn b10_what_depends_on_watch_status_outlives_the_next_upgrade() {
    let mut world = World::start().await;
    world
        .run(
            "create role eyes; grant execute on function pgevict.watch_status to eyes; \
             create view ws as select * from pgevict.watch_status(); \
             update pgevict.meta set functions_checksum = 'other'",
        )
        .await;
    assert!(migrate(&mut world.admin).await.unwrap().changed);
    let may = "select has_function_privilege('eyes', 'pgevict.watch_status()', 'execute')";
    assert_eq!(world.text(may).await, "t");
    assert_eq!(world.text("select count(*) from ws").await, "0");
}

#[tokio::test]
async fn b10_a_binary_works_with_an_older_schema_and_upgrades_it_beneath_running_instances() {
    let mut world = World::installed_by(SCHEMA_2).await;
    watched(&world).await;
    assert_eq!(
        (version(&world).await.schema, version(&world).await.functions),
        (2, 4)
    );
    let mut first = start(&world, "first").await;
    works(&world, &mut first, "old").await;
    // The chores run, or are skipped, and the instance stays in office either way.
    first.until(|status| status.warden, PATIENCE).await;
    works(&world, &mut first, "in office").await;

    // A transaction that began before is not disturbed, nor does it hold the migration up.
    let writer = world.cluster.connect().await.unwrap();
    writer
        .batch_execute("begin isolation level repeatable read; select * from watched")
        .await
        .unwrap();
    let before = version(&world).await;
    let migrated = migrate(&mut world.admin).await.unwrap();
    assert_eq!(migrated.changed, before.checksum != migrated.now.checksum);
    assert!(!migrated.newer && migrated.now.schema >= 2);
    writer
        .batch_execute("update watched set v = 'w1' where id = 1; commit")
        .await
        .unwrap();
    first.event_for("watched:1", PATIENCE).await;

    works(&world, &mut first, "upgraded").await;
    let mut second = start(&world, "second").await;
    works(&world, &mut second, "second").await;
    assert_eq!(
        world
            .text("select string_agg(state, ',') from pgevict.watch_status()")
            .await,
        "ok"
    );
    assert!(!migrate(&mut world.admin).await.unwrap().changed);
    for mut app in [first, second] {
        assert_eq!(App::resets(&app.deliveries().await), []);
        app.pgevict.shutdown().await;
    }
}

#[tokio::test]
async fn b10_chores_that_an_older_schema_lacks_cost_one_line_and_not_the_office() {
    let world = World::installed_by(SCHEMA_2).await;
    let mut instance = command(&world.cluster.url(), &["tail"]);
    instance
        .env("PGEVICT_LOG", "pgevict=info")
        .env("PGEVICT_WARDEN__CLAIM", "200ms")
        .env("PGEVICT_WARDEN__CHORES", "200ms")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut instance = instance.spawn().unwrap();
    let noted = "select count(*) > 5 from pgevict.horizon";
    let done = timeout(PATIENCE, async {
        while world.text(noted).await != "t" {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(done.await.is_ok(), "the chores do not go on");
    instance.start_kill().unwrap();
    let output = instance.wait_with_output().await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.contains("elected warden"), "{log}");
    assert!(log.matches("WARN").count() <= 1, "{log}");
    assert_eq!(world.text("select fence from pgevict.warden").await, "1", "{log}");
}

#[tokio::test]
async fn b10_a_binary_works_with_the_next_schema_and_leaves_it_alone() {
    let mut world = World::start().await;
    watched(&world).await;
    let mut app = start(&world, "before").await;
    works(&world, &mut app, "before").await;
    world.run(NEXT).await;
    let next = version(&world).await;
    works(&world, &mut app, "beneath").await;
    let mut late = start(&world, "late").await;
    works(&world, &mut late, "late").await;

    let migrated = migrate(&mut world.admin).await.unwrap();
    assert!(migrated.newer && !migrated.changed);
    assert_eq!(version(&world).await, next);
    let said = ok(&world.cluster.url(), &["migrate"]).await;
    assert!(
        said.contains("newer pgevict") && said.contains("nothing was changed"),
        "{said}"
    );
    let kept = "select pgevict.next() || (select substring(prosrc from 'next') from pg_proc where proname = 'announce')";
    assert_eq!(world.text(kept).await, "1next");

    // Until the next version says that this one is too old.
    for app in [app, late] {
        app.pgevict.shutdown().await;
    }
    world
        .run("update pgevict.meta set least_reader = schema_version")
        .await;
    let needed = next.schema.to_string();
    refused(
        &world.cluster.url(),
        &["migrate"],
        4,
        &[&needed, "use a newer pgevict"],
    )
    .await;
    let started = Pgevict::builder(config(&world.cluster.url(), "old"))
        .start()
        .await;
    let error = started.map(drop).unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert!(
        error.to_string().contains(&needed) && error.to_string().contains("use a newer pgevict"),
        "{error}"
    );
}

#[tokio::test]
async fn b10_eight_processes_at_once_upgrade_an_older_schema_once() {
    let world = World::installed_by(SCHEMA_2).await;
    watched(&world).await;
    // Makes work for each version of the functions, also for the one of the script.
    world
        .run("update pgevict.meta set functions_checksum = 'older', functions_version = 3")
        .await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let mut client = world.cluster.connect().await.unwrap();
        tasks.push(tokio::spawn(async move { migrate(&mut client).await.unwrap() }));
    }
    let mut changed = 0;
    for task in tasks {
        let migrated = task.await.unwrap();
        assert!(migrated.before.is_some());
        changed += u32::from(migrated.changed);
    }
    assert_eq!(changed, 1);
    assert_eq!(text(&world.admin, "select count(*) from pgevict.meta").await, "1");
    assert_eq!(
        world
            .text("select string_agg(state, ',') from pgevict.watch_status()")
            .await,
        "ok"
    );
    let mut app = start(&world, "after").await;
    works(&world, &mut app, "after").await;
    app.pgevict.shutdown().await;
}
