//! Rows that logical replication brings fire no ordinary trigger, so they invalidated nothing (hasura 8814).

use std::time::Duration;

use pgevict::lab::ClusterOptions;

use crate::support::World;
use crate::support::app::{App, PATIENCE, slow_poll};

#[tokio::test]
async fn c36_under_the_replica_role_the_option_decides() {
    let world = World::start().await;
    world
        .run("create table a (id int primary key, v int); create table b (id int primary key, v int); \
              select pgevict.watch('a', 'a:{id}'); select pgevict.watch('b', 'b:{id}', fire_on_replica => true)")
        .await;
    assert_eq!(
        world
            .text("select string_agg(distinct tgenabled::text, '') from pg_trigger where tgrelid = 'b'::regclass and not tgisinternal")
            .await,
        "A"
    );
    for role in ["origin", "replica"] {
        world.events().await;
        world
            .run(&format!(
                "set session_replication_role = {role}; insert into a values (1, 1); insert into b values (1, 1), (2, 1); \
                 update b set v = 2; truncate a, b"
            ))
            .await;
        let events = world.events().await;
        let of_b: Vec<_> = events
            .iter()
            .filter(|event| event.entity_type.as_deref() == Some("b"))
            .map(|event| event.keys.len())
            .collect();
        assert_eq!(of_b, [2, 2, 0], "whole statements as {role}");
        assert_eq!(
            events.len() - of_b.len(),
            if role == "origin" { 2 } else { 0 },
            "{role}"
        );
    }
}

#[tokio::test]
async fn c36_what_a_subscription_applies_evicts() {
    let logical = || ClusterOptions::new().setting("wal_level", "logical");
    let publisher = World::with(logical()).await;
    let world = World::with(logical()).await;
    publisher.make_kv().await;
    publisher
        .run("insert into kv values ('a', 'v1'), ('n', 'v1'); create publication p for table kv")
        .await;
    // Partitioned here, plain there: both kinds at once.
    world
        .run("create table kv (k text primary key, v text not null) partition by range (k); \
              create table a_l partition of kv for values from ('a') to ('m'); create table m_z partition of kv for values from ('m') to ('{'); \
              select pgevict.watch('kv', '{k}', fire_on_replica => true, flush_ok => true)")
        .await;
    let mut app = App::start(&world, "i", slow_poll).await;
    world
        .run(&format!(
            "create subscription s connection '{}' publication p",
            publisher.cluster.url()
        ))
        .await;
    app.event_for("n", PATIENCE).await;
    for (sql, evicted) in [
        ("update kv set v = 'v2' where k = 'a'", &["a"][..]),
        ("insert into kv values ('o', 'v3')", &["o"]),
        ("update kv set k = 'b' where k = 'n'", &["n", "b"]),
        ("delete from kv where k = 'o'", &["o"]),
    ] {
        for k in ["a", "b", "k", "n", "o"] {
            app.get(k).await;
        }
        publisher.run(sql).await;
        for k in evicted {
            // The wake alone brings it: the next poll is a minute away.
            app.event_for(k, Duration::from_secs(15)).await;
        }
        for k in evicted {
            let now = publisher
                .text(&format!("select max(v) from kv where k = '{k}'"))
                .await;
            assert_eq!(
                app.get(k).await.unwrap_or_else(|| "NULL".into()),
                now,
                "{k} after {sql}"
            );
        }
        assert!(app.held("k").is_some(), "{sql}");
    }
    publisher.run("truncate kv").await;
    app.until(|_| app.held("a").is_none(), PATIENCE).await;
    assert_eq!(app.get("a").await, None);
    assert!(
        !world.cluster.log().contains("has exited"),
        "{}",
        world.cluster.log()
    );
}
