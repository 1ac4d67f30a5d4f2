//! Both ends of a subscription have pgevict, and the publication carries all tables: what is the publisher's stays out,
//! and the apply worker never stops for our reasons.

use pgevict::lab::ClusterOptions;
use tokio::time::timeout;

use crate::support::World;
use crate::support::app::PATIENCE;

#[tokio::test]
async fn a_publication_for_all_tables_brings_users_rows_and_none_of_ours() {
    let logical = || ClusterOptions::new().setting("wal_level", "logical");
    let publisher = World::with(logical()).await;
    let world = World::with(logical()).await;
    for each in [&publisher, &world] {
        each.run(
            "create table mark (n int primary key); create table t (id int primary key, grp int, v text)",
        )
        .await;
    }
    publisher.run("select pgevict.watch('t', 'upstream:{id}'); select pgevict.note_horizon('1h'); \
        select pgevict.beat_heart('up', gen_random_uuid(), 1, pg_current_snapshot()); insert into t values (0, 0, 'x'); \
        create publication everything for all tables").await;
    world
        .run("select pgevict.watch('t', 't:{id}', array['grp:{grp}'], fire_on_replica => true); select pgevict.emit(array['own'])")
        .await;
    let own = "select md5(string_agg(x, '|' order by x)) from ( \
        select m::text from pgevict.meta m union all select w::text from pgevict.warden w \
        union all select s::text from pgevict.sweep s union all select w::text from pgevict.watch w \
        union all select h::text from pgevict.horizon h union all select h::text from pgevict.heartbeat h \
        union all select e::text from pgevict.event e where keys = '{own}') x (x)";
    let before = world.text(own).await;
    world
        .run(&format!(
            "create subscription everything connection '{}' publication everything",
            publisher.cluster.url()
        ))
        .await;
    let mut marks = 0;
    let mut arrived = async || {
        marks += 1;
        publisher.run(&format!("insert into mark values ({marks})")).await;
        let there = timeout(PATIENCE, async {
            while world
                .text(&format!("select count(*) from mark where n = {marks}"))
                .await
                != "1"
            {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        });
        assert!(there.await.is_ok(), "{}", world.cluster.log());
    };
    arrived().await;
    let synced = timeout(PATIENCE, async {
        while world
            .text("select count(*) from pg_subscription_rel where srsubstate <> 'r'")
            .await
            != "0"
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    assert!(synced.await.is_ok(), "{}", world.cluster.log());
    assert_eq!(world.text(own).await, before, "the first copy");
    assert_eq!(world.text("select string_agg(array_to_string(keys, ','), ';' order by id) from pgevict.event where 'own' <> all (keys) and type <> 't.watched'").await, "t:0");

    // Everything that a living publisher does to its own tables; its clock is ahead, and ids of both logs are alike.
    let row = world
        .text("select xid || ',' || id from pgevict.event where keys = '{own}'")
        .await;
    let (xid, id) = row.split_once(',').unwrap();
    publisher
        .run(&format!(
            "select pgevict.set_wake('off'); insert into pgevict.heartbeat values ('ahead', gen_random_uuid(), 1, \
               pg_current_snapshot(), now() + interval '1 hour'); \
             insert into pgevict.horizon values (now() + interval '1 hour', pg_current_snapshot()); \
             update pgevict.heartbeat set beat_at = now(); update pgevict.warden set fence = 77, instance_id = 'up'; \
             update pgevict.sweep set after_id = 77; update pgevict.watch set installed_at = now() + interval '1 hour'; \
             select pgevict.emit(array['foreign']); select pgevict.prune_all(); \
             alter table pgevict.event disable trigger drop_foreign; \
             insert into pgevict.event (xid, id, keys) values ('{xid}', {id}, '{{forged}}') on conflict do nothing; \
             delete from pgevict.event where xid = '{xid}'; delete from pgevict.heartbeat; delete from pgevict.horizon"
        ))
        .await;
    arrived().await;
    assert_eq!(world.text(own).await, before, "changes");
    world.events().await;

    // The user's rows are told, in whatever shape our watch is.
    publisher
        .run("insert into t values (1, 7, 'x'), (2, 7, 'y'); update t set id = 3 where id = 2")
        .await;
    arrived().await;
    let keys: Vec<_> = world
        .events()
        .await
        .into_iter()
        .map(|event| (event.keys, event.tags))
        .collect();
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        keys,
        [
            (texts(&["t:1"]), texts(&["grp:7"])),
            (texts(&["t:2"]), texts(&["grp:7"])),
            (texts(&["t:2", "t:3"]), texts(&["grp:7"]))
        ]
    );
    world
        .run("alter table t alter grp type text using grp::text")
        .await;
    publisher
        .run("update t set v = repeat('z', 100000) where id = 1")
        .await;
    arrived().await;
    assert_eq!(world.event().await.prefixes, ["grp:", "t:"]);
    // Also what a trigger of the user's emits because of a row that arrives.
    world
        .run("create function told() returns trigger language plpgsql as $$ begin perform pgevict.emit(array['by hand']); return null; end $$; \
              create trigger told after delete on t for each row execute function told(); alter table t enable always trigger told")
        .await;
    publisher.run("delete from t where id = 3; truncate t").await;
    arrived().await;
    let events = world.events().await;
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events.iter().any(|event| event.keys == ["by hand"]));
    assert_eq!(events[2].kind.as_deref(), Some("t.truncated"));
    assert_eq!(
        world
            .text("select apply_error_count from pg_stat_subscription_stats")
            .await,
        "0"
    );
}
