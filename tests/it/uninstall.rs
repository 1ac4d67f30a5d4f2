//! Uninstalling: what goes, what stays and why, and what is refused.

use std::time::Duration;

use pgevict::lab::Cluster;
use pgevict::store::migrate::{installed, migrate, plan, uninstall};
use pgevict::store::watch::LOCK_LIMIT;
use tokio::time::{sleep, timeout};

use crate::cli::{ok, refused};
use crate::support::app::PATIENCE;
use crate::support::{World, text};

const ROLES: &str = "select coalesce(string_agg(rolname, ',' order by rolname), '') from pg_roles \
     where rolname like 'pgevict%'";

async fn watched(world: &World) {
    world
        .run(
            "create table products (id int primary key); select pgevict.watch('products', key => 'product:{id}')",
        )
        .await;
}

#[tokio::test]
async fn uninstall_dry_run_tells_all_of_it_and_changes_nothing() {
    let world = World::start().await;
    let url = world.cluster.url();
    watched(&world).await;
    world.run("create role app; grant pgevict_instance to app").await;
    world
        .run("create view recent as select * from pgevict.event")
        .await;
    let before = world.text(ROLES).await;
    // Nobody is waited for.
    let holder = world.cluster.connect().await.unwrap();
    holder.batch_execute("begin; lock table products").await.unwrap();
    let said = ok(&url, &["uninstall", "--dry-run"]).await;
    holder.batch_execute("rollback").await.unwrap();
    for line in [
        "would take the watch off public.products",
        "would remove schema pgevict with its log (0.",
        "would remove role pgevict_admin",
        "would remove role pgevict_owner",
        "role pgevict_instance stays: it is granted to app",
        "would be refused: rule _RETURN on view public.recent",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(world.text(ROLES).await, before);
    world.run("insert into products values (1)").await;
    assert_eq!(
        world
            .text("select count(*) from pgevict.event where type = 'products.created'")
            .await,
        "1"
    );
    refused(&url, &["uninstall", "--dry-run", "--yes"], 2, &["--yes"]).await;
    assert!(
        ok(
            &world.cluster.create_database("bare").await.unwrap(),
            &["uninstall", "--dry-run"]
        )
        .await
        .contains("no schema pgevict")
    );
}

#[tokio::test]
async fn uninstall_takes_a_watch_by_row_for_its_own() {
    let world = World::start().await;
    world
        .run(
            "create table parts (id int primary key) partition by range (id); \
             create table low partition of parts for values from (0) to (100); \
             create table gone partition of parts for values from (100) to (200); \
             create table applied (id int primary key); \
             select pgevict.watch('parts', key => 'part:{id}'), \
               pgevict.watch('applied', key => 'applied:{id}', fire_on_replica => true); \
             alter table parts detach partition gone",
        )
        .await;
    let url = world.cluster.url();
    let said = ok(&url, &["uninstall", "--dry-run"]).await;
    assert!(!said.contains("would be refused"), "{said}");
    ok(&url, &["uninstall", "--yes"]).await;
    assert_eq!(
        world
            .text("select count(*) from pg_trigger where not tgisinternal")
            .await,
        "0"
    );
}

#[tokio::test]
async fn uninstall_drops_the_roles_that_nobody_uses() {
    let world = World::start().await;
    let other = world.cluster.create_database("other").await.unwrap();
    ok(&other, &["migrate"]).await;
    let all = world.text(ROLES).await;
    assert_eq!(all.split(',').count(), 5);
    let said = ok(&world.cluster.url(), &["uninstall", "--yes"]).await;
    assert!(
        said.contains("role pgevict_owner stays: it is used in database other"),
        "{said}"
    );
    assert_eq!(world.text(ROLES).await, all);

    // The last one. A member and a right that the user gave keep two of them.
    world.run("create role app; grant pgevict_instance to app").await;
    world
        .run("create table mine (id int); grant select on mine to pgevict_reader")
        .await;
    let again = world.cluster.url();
    ok(&again, &["migrate"]).await;
    ok(&other, &["uninstall", "--yes"]).await;
    let said = ok(&again, &["uninstall", "--yes"]).await;
    assert!(
        said.contains("role pgevict_instance stays: it is granted to app"),
        "{said}"
    );
    assert!(
        said.contains("role pgevict_reader stays: it is used by table public.mine"),
        "{said}"
    );
    assert_eq!(world.text(ROLES).await, "pgevict_instance,pgevict_reader");
    world
        .run("revoke pgevict_instance from app; drop table mine")
        .await;
    ok(&again, &["migrate"]).await;
    ok(&again, &["uninstall", "--yes"]).await;
    assert_eq!(world.text(ROLES).await, "");
}

#[tokio::test]
async fn uninstall_refuses_to_drop_what_it_did_not_make() {
    let world = World::start().await;
    let url = world.cluster.url();
    watched(&world).await;
    for (made, named, undone) in [
        (
            "create table pgevict.mine (id int)",
            "table pgevict.mine",
            "drop table pgevict.mine",
        ),
        (
            "create function pgevict.mine() returns int language sql as 'select 1'",
            "function pgevict.mine()",
            "drop function pgevict.mine()",
        ),
        (
            "create type pgevict.mood as enum ('a')",
            "type pgevict.mood",
            "drop type pgevict.mood",
        ),
        (
            "create view log as select * from pgevict.event",
            "view public.log",
            "drop view log",
        ),
        (
            "create table keyed (id int, key text default pgevict.key('a'))",
            "default value for column key of table public.keyed",
            "drop table keyed",
        ),
        (
            "create table copy (like pgevict.stale); create table s (one pgevict.stale)",
            "column one of table public.s",
            "drop table copy, s",
        ),
    ] {
        world.run(made).await;
        refused(&url, &["uninstall", "--yes"], 4, &[named, "--force"]).await;
        assert_eq!(
            world.text("select count(*) from pgevict.watch_status()").await,
            "1",
            "{made}"
        );
        world.run(undone).await;
    }
    world
        .run("create view log as select * from pgevict.event; create table pgevict.mine (id int)")
        .await;
    ok(&url, &["uninstall", "--yes", "--force"]).await;
    assert_eq!(
        world
            .text("select to_regclass('log') is null and to_regnamespace('pgevict') is null")
            .await,
        "t"
    );
}

#[tokio::test]
async fn b10_what_an_upgrade_left_behind_is_ours() {
    let mut world = World::installed_by(include_str!("../fixtures/schema_2_functions_4.sql")).await;
    watched(&world).await;
    assert_eq!(plan(&mut world.admin).await.unwrap().foreign, [""; 0]);
    migrate(&mut world.admin).await.unwrap();
    assert_eq!(plan(&mut world.admin).await.unwrap().foreign, [""; 0]);
    assert!(uninstall(&mut world.admin, LOCK_LIMIT).await.unwrap().found);
    assert!(installed(&world.admin).await.unwrap().is_none());
}

#[tokio::test]
async fn uninstall_waits_for_a_table_in_short_tries() {
    let mut world = World::start().await;
    watched(&world).await;
    let holder = world.cluster.connect().await.unwrap();
    holder
        .batch_execute("begin; select * from products")
        .await
        .unwrap();
    let mut writer = world.cluster.connect().await.unwrap();
    let url = world.cluster.url();
    let uninstalling = tokio::spawn(async move { ok(&url, &["uninstall", "--yes"]).await });
    // Writers get through between the tries.
    timeout(PATIENCE, async {
        for n in 0..5 {
            let transaction = writer.transaction().await.unwrap();
            transaction
                .execute("insert into products values ($1)", &[&n])
                .await
                .unwrap();
            transaction.commit().await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .unwrap();
    assert!(installed(&world.admin).await.unwrap().is_some());
    holder.batch_execute("commit").await.unwrap();
    assert!(uninstalling.await.unwrap().contains("with 1 watch"));
    assert!(!uninstall(&mut world.admin, LOCK_LIMIT).await.unwrap().found);
}

#[tokio::test]
async fn uninstall_without_createrole_says_what_is_left_to_drop() {
    let cluster = Cluster::start().await.unwrap();
    let root = cluster.connect().await.unwrap();
    root.batch_execute("create role app login; grant create on database postgres to app")
        .await
        .unwrap();
    let url = format!("postgresql://app@{}/postgres", cluster.address());
    let grants = ok(&url, &["migrate"]).await;
    let grants = &grants[grants.find("create role pgevict").unwrap()..];
    root.batch_execute(grants).await.unwrap();
    let said = ok(&url, &["uninstall", "--yes"]).await;
    assert!(said.contains("somebody who may should run"), "{said}");
    assert_eq!(
        text(&root, "select to_regnamespace('pgevict') is null").await,
        "t"
    );
    let drops = &said[said.find("drop role pgevict").unwrap()..];
    root.batch_execute(drops).await.unwrap();
    assert_eq!(text(&root, ROLES).await, "");
}
