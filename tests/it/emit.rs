//! What emit() writes and refuses, how it announces, and what guards the log.

use pgevict::lab::ClusterOptions;
use tokio_postgres::types::Type;

use crate::support::{World, refusal, text};

#[tokio::test]
async fn an_event_is_stored_with_its_transaction() {
    let world = World::start().await;
    world.run("begin; select pg_current_xact_id(); savepoint s; \
        select pgevict.emit(array['k'], array['t'], array['p:'], 'queue.updated', 'queue', '7', '{\"ttl\": {\"old\": 1, \"new\": 2}}', 'a'); \
        release savepoint s; commit").await;
    let row = world
        .admin
        .query_one(
            "select keys, tags, prefixes, type, entity_type, entity_id, changes::text, source, version, \
        flush, pg_visible_in_snapshot(xid, pg_current_snapshot()) from pgevict.event",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, Vec<String>>(0), ["k"]);
    assert_eq!(row.get::<_, Vec<String>>(1), ["t"]);
    assert_eq!(row.get::<_, Vec<String>>(2), ["p:"]);
    assert_eq!(row.get::<_, &str>(3), "queue.updated");
    assert_eq!(row.get::<_, &str>(4), "queue");
    assert_eq!(row.get::<_, &str>(5), "7");
    assert_eq!(row.get::<_, &str>(6), "{\"ttl\": {\"new\": 2, \"old\": 1}}");
    assert_eq!(row.get::<_, &str>(7), "a");
    assert_eq!(row.get::<_, i16>(8), 1);
    assert!(!row.get::<_, bool>(9));
    assert!(row.get::<_, bool>(10));
    assert_eq!(
        world
            .text("select pgevict.emit(array['x']) = pg_current_xact_id()")
            .await,
        "t"
    );
}

#[tokio::test]
async fn what_a_reader_could_not_hold_is_refused_before_anything_is_written() {
    let world = World::start().await;
    for (sql, words) in [
        (
            "select pgevict.emit(array['a', null])",
            &["element 2 of keys", "null"][..],
        ),
        ("select pgevict.emit('{}', array[null])", &["element 1 of tags"]),
        (
            "select pgevict.emit(array[repeat('x', 1048577)])",
            &["keys", "1048577", "1048576"],
        ),
        (
            "select pgevict.emit('{}', array[repeat('é', 524289)])",
            &["tags", "1048578"],
        ),
        (
            "select pgevict.emit('{}', prefixes => array['a', repeat('x', 1048577)])",
            &["element 2 of prefixes"],
        ),
        (
            "select pgevict.emit('{}', prefixes => array[''])",
            &["prefixes", "flush()"],
        ),
        (
            "select pgevict.emit(array[array['a'], array['b']])",
            &["keys", "dimension"],
        ),
        ("select pgevict.emit('{}')", &["no key", "type"]),
        ("select pgevict.emit(null)", &["no key"]),
        (
            "select pgevict.emit((select array_agg(repeat('x', 1000000)) from generate_series(1, 17)))",
            &["16 MiB"],
        ),
        (
            "select pgevict.emit('{}', type => 'a.b', changes => (select jsonb_agg('1e131071'::numeric) from generate_series(1, 200)))",
            &["16 MiB"],
        ),
        ("select pgevict.evict_prefix('')", &["flush()"]),
        ("select pgevict.evict_prefix(null)", &["flush()"]),
    ] {
        let (code, message) = refusal(&world.admin, sql).await;
        assert_eq!(code, "22023", "{sql}: {message}");
        for word in words {
            assert!(message.contains(word), "{sql}: {message} lacks {word}");
        }
    }
    assert!(world.events().await.is_empty());
    // Right at the limit, and an event for handlers only.
    world
        .run("select pgevict.emit(array[repeat('x', 1048576)]); select pgevict.emit('{}', type => 'a.b')")
        .await;
    assert_eq!(world.events().await.len(), 2);
}

#[tokio::test]
async fn the_mode_decides_how_an_event_is_announced() {
    let world = World::start().await;
    for (mode, setting, announced) in [
        ("adaptive", "", "n"),
        ("commit", "", "n"),
        ("bell", "", "-"),
        ("off", "", "-"),
        ("adaptive", "off", "-"),
        ("commit", "off", "-"),
        ("adaptive", "nonsense", "n"),
        ("off", "commit", "-"),
    ] {
        world.run(&format!("select pgevict.set_wake('{mode}')")).await;
        world
            .run(&format!(
                "begin; set local pgevict.wake = '{setting}'; select pgevict.emit(array['a']); commit"
            ))
            .await;
        let events = world.events().await;
        assert_eq!(events[0].announced, announced, "mode {mode}, setting {setting:?}");
    }
    let (code, message) = refusal(&world.admin, "select pgevict.set_wake('loud')").await;
    assert_eq!(code, "22023");
    assert!(message.contains("adaptive"), "{message}");
}

/// The mode is in the plans of every session; another one changes it, also amid a transaction with an old snapshot.
#[tokio::test]
async fn a_changed_mode_reaches_sessions_that_have_their_plans() {
    let world = World::start().await;
    world
        .run("create table t (id int primary key); select pgevict.watch('t', 't:{id}')")
        .await;
    let writer = world.cluster.connect().await.unwrap();
    let write =
        "insert into t values (1); delete from t; select pgevict.emit(array['a']); select pgevict.flush()";
    for _ in 0..3 {
        writer.batch_execute(write).await.unwrap();
    }
    for (mode, announced) in [("off", "-"), ("commit", "n"), ("bell", "-"), ("adaptive", "n")] {
        world.run(&format!("select pgevict.set_wake('{mode}')")).await;
        world.events().await;
        writer.batch_execute(write).await.unwrap();
        let events = world.events().await;
        assert_eq!(events.len(), 4, "{mode}");
        assert!(
            events.iter().all(|event| event.announced == announced),
            "{mode}: {events:?}"
        );
        // A migration puts the functions in place anew, and keeps the mode.
        world
            .run("update pgevict.meta set functions_checksum = 'other'")
            .await;
        let mut owner = world.cluster.connect().await.unwrap();
        assert!(
            pgevict::store::migrate::migrate(&mut owner)
                .await
                .unwrap()
                .changed
        );
        writer.batch_execute(write).await.unwrap();
        assert!(
            world
                .events()
                .await
                .iter()
                .all(|event| event.announced == announced),
            "{mode}"
        );
    }
}

#[tokio::test]
async fn prepare_transaction_works_while_adaptive() {
    let world = World::with(ClusterOptions::new().setting("max_prepared_transactions", "4")).await;
    world
        .run("create table t (id int primary key); select pgevict.watch('t', 't:{id}')")
        .await;
    world.events().await;
    world
        .run("begin; select pgevict.emit(array['a']); insert into t values (1); prepare transaction 'x'")
        .await;
    world.run("commit prepared 'x'").await;
    let events = world.events().await;
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.announced == "-"), "{events:?}");
    // In mode commit every commit notifies, as asked.
    world.run("select pgevict.set_wake('commit')").await;
    let (code, _) = refusal(
        &world.admin,
        "begin; select pgevict.emit(array['a']); prepare transaction 'x'",
    )
    .await;
    assert_eq!(code, "0A000");
}

#[tokio::test]
async fn values_go_in_as_parameters_whatever_they_hold() {
    let world = World::start().await;
    world.run("create table canary (id int)").await;
    for setting in ["on", "off"] {
        world
            .run(&format!(
                "set standard_conforming_strings = {setting}; set escape_string_warning = off"
            ))
            .await;
        for value in ["x\"; DROP TABLE canary; --", "it's \"q\" $1 \\ %s"] {
            let keys = vec![value];
            world
                .admin
                .query_typed(
                    "select pgevict.emit($1, $1, $1, $2, $2, $2, null, $2)::text",
                    &[(&keys, Type::TEXT_ARRAY), (&value, Type::TEXT)],
                )
                .await
                .unwrap();
            let events = world.events().await;
            assert_eq!(events[0].keys, [value]);
            assert_eq!(events[0].tags, [value]);
            assert_eq!(events[0].prefixes, [value]);
            assert_eq!(events[0].kind.as_deref(), Some(value));
        }
    }
    world.run("select * from canary").await;
}

#[tokio::test]
async fn a_foreign_delete_or_truncate_moves_pruned_and_pruning_does_not() {
    let world = World::start().await;
    let sees = "select pg_visible_in_snapshot((select max(xid::text::numeric)::text::xid8 from pgevict.event), pruned) from pgevict.meta";
    world.run("select pgevict.emit(array['a'])").await;
    assert_eq!(world.text(sees).await, "f");
    world.run("set session_replication_role = replica").await;
    for remove in [
        "delete from pgevict.event where 'a' = any (keys)",
        "truncate pgevict.event",
    ] {
        world.run("select pgevict.emit(array['a'])").await;
        let last = world
            .text("select max(xid::text::numeric) from pgevict.event")
            .await;
        world.run(remove).await;
        assert_eq!(
            world
                .text(&format!(
                    "select pg_visible_in_snapshot('{last}', pruned) from pgevict.meta"
                ))
                .await,
            "t",
            "{remove}"
        );
    }
    world.run("set session_replication_role = origin").await;
    // Pruning: pruned first, then only what it sees.
    world.run("select pgevict.emit(array['a'])").await;
    world
        .run("update pgevict.meta set pruned = pg_current_snapshot()")
        .await;
    let pruned = world.text("select pruned from pgevict.meta").await;
    world.run("select pgevict.emit(array['b']); delete from pgevict.event where 'a' = any (keys); delete from pgevict.event where false").await;
    assert_eq!(world.text("select pruned from pgevict.meta").await, pruned);
    let (code, message) = refusal(
        &world.admin,
        "begin isolation level repeatable read; delete from pgevict.event",
    )
    .await;
    assert_eq!(code, "25000");
    assert!(message.contains("READ COMMITTED"), "{message}");
    world.run("rollback").await;
}

#[tokio::test]
async fn rows_of_another_log_are_dropped() {
    let world = World::start().await;
    for role in ["origin", "replica"] {
        world.run(&format!("set session_replication_role = {role}")).await;
        world
            .run("insert into pgevict.event (xid, keys) values ('3', '{a}'), (pg_current_xact_id(), '{b}')")
            .await;
        let events = world.events().await;
        assert_eq!(events.len(), 1, "{role}");
        assert_eq!(events[0].keys, ["b"]);
    }
}

#[tokio::test]
async fn an_epoch_is_founded_once_and_a_new_identity_empties_the_log() {
    let world = World::start().await;
    world.run("select pgevict.emit(array['a']); select pgevict.beat_heart('i', gen_random_uuid(), 1, pg_current_snapshot())").await;
    let first = world.text("select epoch from pgevict.establish()").await;
    assert_eq!(world.text("select fresh from pgevict.establish()").await, "f");
    assert_eq!(world.text("select epoch from pgevict.meta").await, first);

    // The row is gone, as after a crash: a new epoch, the same log.
    world.run("delete from pgevict.epoch").await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let client = world.cluster.connect().await.unwrap();
        tasks.push(tokio::spawn(async move {
            text(&client, "select epoch || ' ' || fresh from pgevict.establish()").await
        }));
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    assert_eq!(
        answers.iter().filter(|answer| answer.ends_with("true")).count(),
        1,
        "{answers:?}"
    );
    let second = answers[0].split(' ').next().unwrap().to_owned();
    assert!(
        answers.iter().all(|answer| answer.starts_with(&second)),
        "{answers:?}"
    );
    assert_ne!(second, first);
    assert_eq!(world.text("select count(*) from pgevict.event").await, "1");

    // Epoch and meta as a dump of another server would bring them.
    world
        .run("update pgevict.epoch set system_identifier = 1; update pgevict.meta set system_identifier = 1")
        .await;
    let last = world.text("select xid from pgevict.event").await;
    assert_eq!(world.text("select fresh from pgevict.establish()").await, "t");
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");
    assert_eq!(world.text("select count(*) from pgevict.heartbeat").await, "0");
    assert_eq!(
        world
            .text(&format!(
                "select pg_visible_in_snapshot('{last}', pruned) from pgevict.meta"
            ))
            .await,
        "t"
    );
    assert_eq!(
        world
            .text(
                "select count(*) from pgevict.epoch e join pgevict.meta m using (epoch, system_identifier) \
        where system_identifier <> 1"
            )
            .await,
        "1"
    );
    world.run("delete from pgevict.epoch").await;
    assert_eq!(
        refusal(
            &world.admin,
            "begin isolation level serializable; select pgevict.establish()"
        )
        .await
        .0,
        "25000"
    );
}

#[tokio::test]
async fn a_heartbeat_keeps_the_greatest_sequence() {
    let world = World::start().await;
    let process = "'00000000-0000-0000-0000-000000000001'";
    for (sequence, snapshot) in [(5, "10:10:"), (4, "9:9:"), (6, "11:11:")] {
        world
            .run(&format!(
                "select pgevict.beat_heart('i', {process}, {sequence}, '{snapshot}')"
            ))
            .await;
    }
    assert_eq!(
        world
            .text("select sequence || ' ' || cursor from pgevict.heartbeat")
            .await,
        "6 11:11:"
    );
    world.run(&format!("select pgevict.leave('i', {process})")).await;
    assert_eq!(world.text("select count(*) from pgevict.heartbeat").await, "0");
}

#[tokio::test]
async fn every_function_runs_under_the_strictest_checks() {
    let world = World::start().await;
    world
        .run("set plpgsql.extra_errors = 'all'; set standard_conforming_strings = off; set search_path = ''")
        .await;
    world
        .run("create table public.t (id int primary key, x int); select pgevict.watch('public.t', 't:{id}')")
        .await;
    world.run("insert into public.t values (1, 2); update public.t set x = 3; delete from public.t; truncate public.t").await;
    world
        .run("select pgevict.emit(array['a']), pgevict.flush(), pgevict.evict_prefix('p')")
        .await;
    world.run("delete from pgevict.epoch; update pgevict.meta set system_identifier = 5; select pgevict.establish()").await;
    world.run("select pgevict.key('a:{}', 1); select * from pgevict.watch_status(); select pgevict.set_wake('off')").await;
    world.run("select pgevict.beat_heart('i', gen_random_uuid(), 1, pg_current_snapshot()); truncate pgevict.event").await;
    assert_eq!(
        refusal(&world.admin, "select pgevict.emit(array[null])").await.0,
        "22023"
    );
    world.run("select pgevict.unwatch('public.t')").await;
}
