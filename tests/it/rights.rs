//! The least rights with which each thing works, and who may install.

use std::process::Stdio;
use std::time::Duration;

use pgevict::lab::Cluster;
use pgevict::store::migrate::migrate;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::cli::{command, ok, refused};
use crate::doctor::Doctor;
use crate::support::app::{App, PATIENCE};
use crate::support::{World, refusal, text};

const OWNER: &str = "select nspowner::regrole from pg_namespace where nspname = 'pgevict'";

async fn session(cluster: &Cluster, role: &str, database: &str) -> Client {
    let client = cluster.connect_to(database).await.unwrap();
    let sql = format!("set session authorization {role}");
    client.batch_execute(&sql).await.unwrap();
    client
}

#[tokio::test]
async fn an_instance_of_the_least_rights_does_all_of_its_work() {
    let world = World::with_kv().await;
    world
        .run(
            "create role app login; grant pgevict_instance, pgevict_emitter to app; grant all on kv to app; \
             create role writer login; grant all on kv to writer; select pgevict.watch('kv', key => 'kv:{k}')",
        )
        .await;
    let url = format!("postgresql://app@{}/postgres", world.cluster.address());
    let mut app = App::start_at(&world, &url, "app", |config| {
        config.warden.claim = Duration::from_millis(200);
        config.warden.chores = Duration::from_millis(200);
        config.warden.retention = Duration::from_secs(1);
    })
    .await;
    app.until_proved(PATIENCE).await;
    app.until(|status| status.warden, PATIENCE).await;
    let event = pgevict::Event::default().key(crate::support::app::key("k"));
    let mut db = session(&world.cluster, "app", "postgres").await;
    let emitted: Result<_, Box<dyn std::error::Error + Send + Sync>> = app
        .pgevict
        .transaction(&mut db, async |tx| Ok(tx.emit(event).await?))
        .await;
    emitted.unwrap();
    app.event_for("k", PATIENCE).await;
    // A watched write needs no right on anything of ours.
    let writer = session(&world.cluster, "writer", "postgres").await;
    writer
        .batch_execute("update kv set v = 'w' where k = 'k'")
        .await
        .unwrap();
    app.event_for("kv:k", PATIENCE).await;
    app.until(|status| status.pruned > 0, PATIENCE).await;
    let seen = Doctor::asked(&url, &[]).await;
    assert_eq!((seen.code, seen.codes()), (0, vec![]), "{}", seen.report);
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn each_command_needs_the_role_that_the_readme_names_and_no_more() {
    let world = World::start().await;
    world
        .run(
            "create role nobody login; create role emitter login; grant pgevict_emitter to emitter; \
             create role instance login; grant pgevict_instance to instance; \
             create role reader login; grant pgevict_reader to reader; \
             create role admin login; grant pgevict_admin to admin; \
             create role team login; grant pgevict_admin to team; create schema team authorization team; \
             create table team.items (id int primary key); alter table team.items owner to team",
        )
        .await;
    let url = |role: &str| format!("postgresql://{role}@{}/postgres", world.cluster.address());
    let watch: &[&str] = &["watch", "team.items", "--key", "item:{id}"];
    let commands: [(&str, &[&str]); 9] = [
        ("emitter", &["emit", "--key", "a"]),
        ("emitter", &["flush"]),
        ("instance", &["prune"]),
        ("reader", &["doctor"]),
        ("admin", &["wake", "adaptive"]),
        ("team", watch),
        ("admin", &["watches"]),
        ("team", &["unwatch", "team.items"]),
        ("admin", &["epoch", "show"]),
    ];
    for (role, args) in commands {
        ok(&url(role), args).await;
        match args {
            ["doctor"] => assert_eq!(
                Doctor::asked(&url("nobody"), &[]).await.faults(),
                ["no-right-to-read"]
            ),
            _ => refused(&url("nobody"), args, 4, &["pgevict"]).await,
        }
    }
    // Who is not the owner of the table may not watch it.
    refused(&url("admin"), watch, 4, &["team"]).await;
    refused(&url("emitter"), &["prune"], 4, &["pgevict_instance"]).await;
    refused(&url("reader"), &["emit", "--key", "a"], 4, &["pgevict_emitter"]).await;
    refused(&url("instance"), &["wake", "off"], 4, &["pgevict_admin"]).await;

    let mut tail = command(&url("instance"), &["tail", "--count", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let first = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
    assert!(first.is_some_and(|line| line.contains("following")));
    ok(&url("emitter"), &["emit", "--key", "a"]).await;
    assert!(timeout(PATIENCE, tail.wait()).await.unwrap().unwrap().success());
}

/// From 16 on CREATEROLE gives rights on the roles that one has made, and on no others.
#[tokio::test]
async fn a_second_role_with_createrole_installs_another_database() {
    let cluster = Cluster::start().await.unwrap();
    let root = cluster.connect().await.unwrap();
    for database in ["one", "two"] {
        cluster.create_database(database).await.unwrap();
    }
    root.batch_execute(
        "create role first createrole; create role second createrole; grant create on database one, two to first; \
         grant create on database two to second; create role app; create role writer",
    )
    .await
    .unwrap();
    let mut first = session(&cluster, "first", "one").await;
    assert!(migrate(&mut first).await.unwrap().grants.is_none());
    assert_eq!(text(&first, OWNER).await, "pgevict_owner");
    first
        .batch_execute("grant pgevict_instance to app; grant pgevict_emitter to writer")
        .await
        .unwrap();

    let mut second = session(&cluster, "second", "two").await;
    let migrated = migrate(&mut second).await.unwrap();
    assert!(migrated.changed && migrated.grants.is_none());
    // On 15 it may take the owner's role, from 16 on it owns all of it itself; for the others it is the same.
    let owner = if cluster.major_version() < 16 {
        "pgevict_owner"
    } else {
        "second"
    };
    assert_eq!(text(&second, OWNER).await, owner);
    for database in ["one", "two"] {
        let app = session(&cluster, "app", database).await;
        app.batch_execute("select * from pgevict.establish(); select * from pgevict.event")
            .await
            .unwrap();
        assert_eq!(refusal(&app, "select pgevict.emit(array['a'])").await.0, "42501");
        let writer = session(&cluster, "writer", database).await;
        writer
            .batch_execute("select pgevict.emit(array['a'])")
            .await
            .unwrap();
        assert_eq!(refusal(&writer, "select * from pgevict.event").await.0, "42501");
    }

    // Each upgrades and uninstalls what it has installed. The last one to go takes along the roles that it may drop.
    first
        .batch_execute("revoke pgevict_instance from app; revoke pgevict_emitter from writer")
        .await
        .unwrap();
    let root_two = cluster.connect_to("two").await.unwrap();
    root_two
        .batch_execute("update pgevict.meta set functions_checksum = 'other'")
        .await
        .unwrap();
    assert!(migrate(&mut second).await.unwrap().changed);
    let limit = Duration::from_secs(5);
    let gone = pgevict::store::migrate::uninstall(&mut second, limit)
        .await
        .unwrap();
    assert!(gone.found && gone.roles.is_empty(), "{gone:?}");
    let gone = pgevict::store::migrate::uninstall(&mut first, limit)
        .await
        .unwrap();
    let all = "select count(*) from pg_roles where rolname like 'pgevict%'";
    assert_eq!(text(&root, all).await, (gone.kept.len()).to_string(), "{gone:?}");
    // On 15 the second was made a member of the owner, which only its user can know to be needless.
    let kept: Vec<_> = gone.kept.iter().map(|role| role.name.as_str()).collect();
    let wanted: &[&str] = if cluster.major_version() < 16 {
        &["pgevict_owner"]
    } else {
        &[]
    };
    assert_eq!(kept, wanted);
}

#[tokio::test]
async fn roles_that_exist_are_granted_to_by_who_may_not_make_them() {
    let world = World::start().await;
    world.cluster.create_database("second").await.unwrap();
    world
        .run("create role app; grant create on database second to app; create role r; grant pgevict_reader to r")
        .await;
    let mut app = session(&world.cluster, "app", "second").await;
    // Nothing is left to do for a DBA.
    assert!(migrate(&mut app).await.unwrap().grants.is_none());
    assert_eq!(text(&app, OWNER).await, "app");
    let reader = session(&world.cluster, "r", "second").await;
    reader
        .batch_execute("select * from pgevict.establish()")
        .await
        .unwrap();
    assert_eq!(refusal(&reader, "select pgevict.flush()").await.0, "42501");
    // The owner of it all has every right.
    app.batch_execute(
        "create schema shop; create table shop.t (id int); select pgevict.watch('shop.t', 't:{id}'); \
         insert into shop.t values (1); select pgevict.unwatch('shop.t'), pgevict.emit(array['a']), \
         pgevict.set_wake('off'); select * from pgevict.prune('1 h', 10)",
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn who_may_not_create_a_schema_is_told_what_is_missing() {
    let cluster = Cluster::start().await.unwrap();
    let root = cluster.connect().await.unwrap();
    root.batch_execute("create role app login").await.unwrap();
    let url = format!("postgresql://app@{}/postgres", cluster.address());
    refused(
        &url,
        &["migrate"],
        4,
        &["permission denied for database postgres"],
    )
    .await;
    assert_eq!(
        text(&root, "select to_regnamespace('pgevict') is null").await,
        "t"
    );
}
