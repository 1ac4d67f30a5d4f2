//! Installing, upgrading, removing.

use std::time::Duration;

use pgevict::lab::{Cluster, ClusterOptions};
use pgevict::store::migrate::{installed, migrate, print, uninstall};
use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, watch};

use crate::support::{World, refusal, text};

/// All that the schema consists of, to compare two installations by.
const SHAPE: &str = "select string_agg(line, e'\\n' order by line) from ( \
     select 'table ' || c.oid::regclass || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) as line \
     from pg_class c join pg_attribute a on a.attrelid = c.oid \
     where c.relnamespace = 'pgevict'::regnamespace and a.attnum > 0 \
     union all select 'function ' || p.oid::regprocedure || ' ' || md5(p.prosrc) || ' ' || coalesce(p.proacl::text, '') \
     from pg_proc p where p.pronamespace = 'pgevict'::regnamespace \
     union all select 'trigger ' || tgname || ' ' || tgenabled::text from pg_trigger where not tgisinternal) l";

#[tokio::test]
async fn eight_processes_at_once_install_one_schema() {
    let cluster = Cluster::start().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let mut client = cluster.connect().await.unwrap();
        tasks.push(tokio::spawn(async move { migrate(&mut client).await.unwrap() }));
    }
    let mut changed = 0;
    for task in tasks {
        changed += u32::from(task.await.unwrap().changed);
    }
    assert_eq!(changed, 1);
    let client = cluster.connect().await.unwrap();
    assert_eq!(text(&client, "select count(*) from pgevict.meta").await, "1");
    assert_eq!(text(&client, "select count(*) from pgevict.epoch").await, "1");
}

#[tokio::test]
async fn eight_databases_at_once_share_the_roles() {
    let cluster = Cluster::start().await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..8 {
        cluster.create_database(&format!("d{n}")).await.unwrap();
    }
    for n in 0..8 {
        let mut client = cluster.connect_to(&format!("d{n}")).await.unwrap();
        tasks.push(tokio::spawn(async move { migrate(&mut client).await.unwrap() }));
    }
    for task in tasks {
        let migrated = task.await.unwrap();
        assert!(migrated.changed && migrated.grants.is_none());
    }
    for n in 0..8 {
        let client = cluster.connect_to(&format!("d{n}")).await.unwrap();
        assert_eq!(
            text(
                &client,
                "select nspowner::regrole from pg_namespace where nspname = 'pgevict'"
            )
            .await,
            "pgevict_owner"
        );
    }
}

#[tokio::test]
async fn a_second_migrate_issues_no_ddl_and_takes_no_lock() {
    let world = World::with(ClusterOptions::new().setting("log_statement", "ddl")).await;
    let mark = world.cluster.log().len();
    let before = installed(&world.admin).await.unwrap();
    // Who held the lock of a migration would be waited for.
    world
        .run("begin; select pg_advisory_xact_lock(x'70676576696374'::bigint)")
        .await;
    let mut other = world.cluster.connect().await.unwrap();
    let again = tokio::time::timeout(Duration::from_secs(2), migrate(&mut other)).await;
    let again = again.expect("waits for a lock").unwrap();
    assert!(!again.changed);
    assert_eq!(Some(again.now), before);
    let log = world.cluster.log();
    assert!(!log[mark..].contains("create"), "{}", &log[mark..]);
}

#[tokio::test]
async fn functions_are_applied_anew_when_their_text_differs_but_never_over_newer_ones() {
    let mut world = World::start().await;
    world.run("create or replace function pgevict.announce() returns \"char\" language sql as $$ select '?'::\"char\" $$; \
               update pgevict.meta set functions_checksum = 'other'").await;
    assert!(migrate(&mut world.admin).await.unwrap().changed);
    assert_eq!(world.text("select pgevict.announce()").await, "n");

    world
        .run(
            "update pgevict.meta set functions_checksum = 'other', functions_version = functions_version + 1",
        )
        .await;
    assert!(!migrate(&mut world.admin).await.unwrap().changed);

    world
        .run("update pgevict.meta set schema_version = 99, least_reader = 99")
        .await;
    let error = migrate(&mut world.admin).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("99"), "{error}");
}

#[tokio::test]
async fn applying_functions_anew_does_not_wait_for_writers_of_events() {
    let world = World::start().await;
    world
        .run("update pgevict.meta set functions_checksum = 'other'")
        .await;
    world.run("begin; select pgevict.emit(array['a'])").await;
    let mut other = world.cluster.connect().await.unwrap();
    let migrated = tokio::time::timeout(Duration::from_secs(5), migrate(&mut other)).await;
    assert!(migrated.expect("waits for a writer").unwrap().changed);
}

#[tokio::test]
async fn the_printed_script_installs_the_same() {
    let world = World::start().await;
    world.cluster.create_database("by_hand").await.unwrap();
    let mut by_hand = world.cluster.connect_to("by_hand").await.unwrap();
    by_hand.batch_execute(&print()).await.unwrap();
    assert_eq!(world.text(SHAPE).await, text(&by_hand, SHAPE).await);
    assert!(!migrate(&mut by_hand).await.unwrap().changed);
}

#[tokio::test]
async fn an_upgrade_from_the_first_version_ends_as_a_first_installation_does() {
    let fresh = World::start().await;
    fresh.cluster.create_database("upgraded").await.unwrap();
    let mut upgraded = fresh.cluster.connect_to("upgraded").await.unwrap();
    let first = format!(
        "begin; {} {} insert into pgevict.meta (schema_version, least_reader, functions_version, pruned) \
         values (1, 1, 1, pg_catalog.pg_current_snapshot()); commit",
        include_str!("../../sql/owner.sql"),
        include_str!("../../sql/migrations/0001_log.sql")
    );
    upgraded.batch_execute(&first).await.unwrap();
    upgraded
        .batch_execute("insert into pgevict.event (keys) values (array['kept'])")
        .await
        .unwrap();
    let migrated = migrate(&mut upgraded).await.unwrap();
    assert_eq!(migrated.before.unwrap().schema, 1);
    assert_eq!((migrated.now.schema, migrated.now.least_reader), (3, 1));
    assert_eq!(text(&upgraded, SHAPE).await, fresh.text(SHAPE).await);
    assert_eq!(text(&upgraded, "select count(*) from pgevict.event").await, "1");
    assert!(!migrate(&mut upgraded).await.unwrap().changed);
}

#[tokio::test]
async fn a_role_without_createrole_owns_everything_itself_and_is_told_the_grants() {
    let cluster = Cluster::start().await.unwrap();
    let root = cluster.connect().await.unwrap();
    root.batch_execute("create role app; grant create on database postgres to app")
        .await
        .unwrap();
    let mut app = cluster.connect().await.unwrap();
    app.batch_execute("set session authorization app").await.unwrap();
    let migrated = migrate(&mut app).await.unwrap();
    let grants = migrated.grants.expect("grants to run");
    assert!(
        grants.contains("create role pgevict_emitter nologin;"),
        "{grants}"
    );
    assert_eq!(
        text(
            &root,
            "select nspowner::regrole from pg_namespace where nspname = 'pgevict'"
        )
        .await,
        "app"
    );
    app.batch_execute(
        "select pgevict.emit(array['a']); select * from pgevict.establish(); \
        create table t (id int); select pgevict.watch('t', 't:{id}')",
    )
    .await
    .unwrap_err();
    app.batch_execute("select pgevict.emit(array['a']); select * from pgevict.establish()")
        .await
        .unwrap();

    root.batch_execute(&grants).await.unwrap();
    root.batch_execute("create role writer; grant pgevict_emitter to writer")
        .await
        .unwrap();
    let writer = cluster.connect().await.unwrap();
    writer
        .batch_execute("set session authorization writer; select pgevict.emit(array['b'])")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_role_with_createrole_installs_for_the_owner_role() {
    let cluster = Cluster::start().await.unwrap();
    let root = cluster.connect().await.unwrap();
    root.batch_execute("create role dba createrole; grant create on database postgres to dba")
        .await
        .unwrap();
    let mut dba = cluster.connect().await.unwrap();
    dba.batch_execute("set session authorization dba").await.unwrap();
    assert!(migrate(&mut dba).await.unwrap().grants.is_none());
    assert_eq!(
        text(
            &root,
            "select string_agg(distinct relowner::regrole::text, ',') from pg_class \
             where relnamespace = 'pgevict'::regnamespace"
        )
        .await,
        "pgevict_owner"
    );
    assert_eq!(text(&dba, "select current_user").await, "dba");
    // Another role that is no member of the owner cannot upgrade, and is told so.
    root.batch_execute(
        "update pgevict.meta set functions_checksum = 'other'; create role other; \
        grant pgevict_reader to other",
    )
    .await
    .unwrap();
    let mut other = cluster.connect().await.unwrap();
    other
        .batch_execute("set session authorization other")
        .await
        .unwrap();
    let error = migrate(&mut other).await.unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("grant pgevict_owner to other"),
        "{error}"
    );
}

#[tokio::test]
async fn every_function_has_a_pinned_path_and_none_is_for_everybody() {
    let world = World::start().await;
    assert_eq!(world.text("select coalesce(string_agg(oid::regprocedure::text, ', '), 'none') from pg_proc \
        where pronamespace = 'pgevict'::regnamespace and (proacl is null or has_function_privilege('public', oid, 'execute') \
        or not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false))").await, "none");
    assert_eq!(
        world
            .text(
                "select string_agg(proname, ',' order by proname) from pg_proc \
            where pronamespace = 'pgevict'::regnamespace and prosecdef"
            )
            .await,
        "advance_pruned,announce,beat_heart,check_watches,claim_warden,emit,epoch_adopt,epoch_new,establish,evict_prefix,\
         flush,leave,mark,note_deletion,note_horizon,note_truncation,note_watch,prune,prune_all,release_warden,set_wake,\
         watch_build,watch_sweep"
    );
}

#[tokio::test]
async fn uninstall_frees_the_watched_tables() {
    let mut world = World::start().await;
    world.run("create table products (id int primary key)").await;
    watch(
        &mut world.admin,
        &WatchDefinition::new("products").key("product:{id}"),
        LOCK_LIMIT,
    )
    .await
    .unwrap();
    let gone = uninstall(&mut world.admin, LOCK_LIMIT).await.unwrap();
    assert!(gone.found);
    assert_eq!(gone.watches, 1);
    assert_eq!(
        world
            .text("select count(*) from pg_trigger where not tgisinternal")
            .await,
        "0"
    );
    world.run("insert into products values (1)").await;
    assert!(installed(&world.admin).await.unwrap().is_none());
    assert!(!uninstall(&mut world.admin, LOCK_LIMIT).await.unwrap().found);
    assert!(migrate(&mut world.admin).await.unwrap().changed);
}

#[tokio::test]
async fn readers_may_read_and_writers_may_not() {
    let world = World::start().await;
    world
        .run("create role r; grant pgevict_reader to r; create role e; grant pgevict_emitter to e")
        .await;
    let reader = world.session_of("r").await;
    reader
        .batch_execute(
            "select * from pgevict.meta, pgevict.epoch, pgevict.event, pgevict.heartbeat; \
            select last_value from pgevict.beat; select * from pgevict.establish(); \
            select pgevict.beat_heart('i', gen_random_uuid(), 1, pg_current_snapshot())",
        )
        .await
        .unwrap();
    assert_eq!(
        refusal(&reader, "select pgevict.emit(array['a'])").await.0,
        "42501"
    );
    assert_eq!(refusal(&reader, "select pgevict.announce()").await.0, "42501");
    let emitter = world.session_of("e").await;
    emitter
        .batch_execute("select pgevict.emit(array['a']), pgevict.flush(), pgevict.evict_prefix('p')")
        .await
        .unwrap();
    assert_eq!(refusal(&emitter, "select * from pgevict.event").await.0, "42501");
    assert_eq!(
        refusal(&emitter, "insert into pgevict.event default values")
            .await
            .0,
        "42501"
    );
    assert_eq!(
        refusal(&emitter, "select pgevict.set_wake('off')").await.0,
        "42501"
    );
}
