//! What no trigger sees, the warden does: a watch that is not whole, and a table that changed behind its triggers.

use std::time::{Duration, Instant};

use pgevict::Config;
use pgevict::lab::ClusterOptions;
use pgevict::store::watch::{WatchState, watches};

use crate::support::app::{App, PATIENCE};
use crate::support::{World, text};

impl World {
    /// With a watched table of two rows, checked once.
    async fn with_products() -> Self {
        let world = Self::start().await;
        world.run(PRODUCTS).await;
        assert_eq!(world.check().await, "");
        world.events().await;
        world
    }

    /// One check, as the warden does it: the watches that are not whole.
    async fn check(&self) -> String {
        let sql = "select coalesce(string_agg(concat_ws(' ', schema_name, table_name, state, reason), '; '), '') \
                   from pgevict.check_watches()";
        self.text(sql).await
    }

    /// Prefixes that the next check makes stale; each event is of the type of a check.
    async fn told(&self) -> Vec<String> {
        self.check().await;
        let events = self.events().await;
        for event in &events {
            assert!(event.kind.as_deref().unwrap().ends_with(".checked"), "{event:?}");
        }
        events.into_iter().flat_map(|event| event.prefixes).collect()
    }
}

const PRODUCTS: &str = "create table products (id int primary key, name text, price int); \
     insert into products values (1, 'a', 1), (2, 'b', 2); \
     select pgevict.watch('products', 'product:{id}', columns => array['price'])";

const HEADS: [&str; 1] = ["product:"];

#[tokio::test]
async fn a_watch_that_is_not_whole_is_told_at_every_check_and_once_more_when_it_is_whole_again() {
    let world = World::with_products().await;
    assert!(world.told().await.is_empty());
    let cases = [
        (
            "alter table products disable trigger pgevict_update",
            "disabled: pgevict_update",
            "alter table products enable trigger pgevict_update",
        ),
        (
            "alter table products disable trigger all",
            "disabled: pgevict_delete, pgevict_insert, pgevict_truncate, pgevict_update",
            "alter table products enable trigger user",
        ),
        (
            "drop trigger pgevict_delete on products",
            "its triggers are not those of the watch",
            "",
        ),
        (
            "drop trigger pgevict_delete on products; drop trigger pgevict_insert on products; \
             drop trigger pgevict_update on products; drop trigger pgevict_truncate on products",
            "its triggers were dropped",
            "",
        ),
        (
            "alter table products rename column price to cost",
            "dropped or renamed columns: price",
            "alter table products rename column cost to price",
        ),
        (
            "alter table products rename column id to number",
            "dropped or renamed columns: id",
            "alter table products rename column number to id",
        ),
    ];
    for (fault, reason, cure) in cases {
        world.run(fault).await;
        for _ in 0..3 {
            let found = world.check().await;
            assert!(found.contains(reason), "{fault}: {found}");
            assert_eq!(world.event().await.prefixes, HEADS, "{fault}");
        }
        let state = "select reason || ' ' || (since is not null) || ' ' || cure from pgevict.watch_status()";
        let status = world.text(state).await;
        assert!(
            status.contains(reason) && status.contains(" true ") && status.contains("watch the table again"),
            "{fault}: {status}"
        );
        if cure.is_empty() {
            world
                .run("select pgevict.watch('products', 'product:{id}', columns => array['price'])")
                .await;
            world.events().await;
            assert!(world.told().await.is_empty(), "watching it again told already");
        } else {
            world.run(cure).await;
            assert_eq!(world.told().await, HEADS, "{cure}");
        }
        assert!(world.told().await.is_empty(), "{cure}");
        assert_eq!(world.check().await, "");
    }
}

#[tokio::test]
async fn what_changes_a_table_behind_its_triggers_is_told_once() {
    let world = World::with_products().await;
    let cases = [
        "alter table products alter column price type int using price + 1",
        "alter table products disable trigger pgevict_update; update products set price = 7; \
         alter table products enable trigger pgevict_update",
        "set session_replication_role = replica; truncate products; reset session_replication_role",
        "alter table products add column more int",
        "begin; create table moved (like products including all); drop table moved; \
         alter table products drop column more; commit",
        "create table child () inherits (products); ",
        "alter table child no inherit products",
    ];
    for change in cases {
        world.run(change).await;
        assert_eq!(world.told().await, HEADS, "{change}");
        assert!(world.told().await.is_empty(), "{change}");
    }
    // What is no change of what the table says.
    for change in [
        "create index on products (price); analyze products; alter table products set (fillfactor = 80)",
        "vacuum products",
        "select pgevict.watch_rebuild()",
        "update pgevict.meta set functions_checksum = 'other'",
    ] {
        world.run(change).await;
        assert!(world.told().await.is_empty(), "{change}");
    }
    let detached = "select detached::text from pgevict.watch_status()";
    assert_eq!(world.text(detached).await, "{public.child}");
    world.run("drop table child").await;
    assert_eq!(world.text(detached).await, "{}");
}

#[tokio::test]
async fn partitions_that_come_and_go_are_told_once_and_a_trigger_disabled_on_one_at_every_check() {
    let world = World::start().await;
    world
        .run(
            "create table parts (id int primary key, v int) partition by range (id); \
              create table low partition of parts for values from (0) to (100); \
              create table odd partition of parts for values from (100) to (200) partition by range (id); \
              create table late (v int, id int primary key); insert into late values (7, 201); \
              select pgevict.watch('parts', 'part:{id}')",
        )
        .await;
    world.check().await;
    world.events().await;
    assert!(world.told().await.is_empty());
    let heads = ["part:"];
    for change in [
        "alter table parts attach partition late for values from (200) to (300)",
        "set session_replication_role = replica; truncate low; reset session_replication_role",
        "create table odd_1 partition of odd for values from (100) to (150)",
        "insert into odd_1 values (101, 1); delete from pgevict.event; truncate odd_1; \
         delete from pgevict.event where type = 'parts.truncated'",
        "alter table odd detach partition odd_1",
        "alter table odd attach partition odd_1 for values from (100) to (150)",
        "drop table odd_1",
        "alter table parts alter v type bigint using v + 1",
        "alter table parts detach partition late concurrently",
    ] {
        world.run(change).await;
        assert_eq!(world.told().await, heads, "{change}");
        assert!(world.told().await.is_empty(), "{change}");
    }
    let status = "select state || ' ' || detached::text from pgevict.watch_status()";
    assert_eq!(world.text(status).await, "ok {public.late}");

    let trigger = world
        .text(
            "select quote_ident(tgname) from pg_trigger where tgrelid = 'low'::regclass and tgparentid <> 0",
        )
        .await;
    world
        .run(&format!("alter table low disable trigger {trigger}"))
        .await;
    for _ in 0..2 {
        let found = world.check().await;
        assert!(
            found.contains(&format!("disabled: {trigger} on public.low")),
            "{found}"
        );
        assert_eq!(world.event().await.prefixes, heads);
    }
    world
        .run(&format!("alter table low enable trigger {trigger}"))
        .await;
    assert_eq!(world.told().await, heads);
    assert!(world.told().await.is_empty());
}

#[tokio::test]
async fn a_change_that_is_not_committed_is_not_taken_as_seen() {
    let world = World::with_products().await;
    let other = world.cluster.connect().await.unwrap();
    other
        .batch_execute("begin; alter table products alter column price type int using price + 1")
        .await
        .unwrap();
    // The table is locked as hard as can be; who checks does not wait for it.
    assert!(world.told().await.is_empty());
    other.batch_execute("commit").await.unwrap();
    assert_eq!(world.told().await, HEADS);
    other
        .batch_execute("begin; alter table products disable trigger all; rollback")
        .await
        .unwrap();
    assert!(world.told().await.is_empty());

    // A check that was rolled back has told nobody, and noted nothing.
    world
        .run("alter table products disable trigger pgevict_update; alter table products enable trigger pgevict_update")
        .await;
    world.run("begin").await;
    world.check().await;
    world.run("rollback").await;
    assert_eq!(world.told().await, HEADS);
}

#[tokio::test]
async fn two_checks_at_once_tell_a_thing_twice_at_most_and_none_waits_for_long() {
    let world = World::with_products().await;
    world
        .run("create table other (id int primary key); select pgevict.watch('other', 'other:{id}')")
        .await;
    world.check().await;
    world.events().await;
    let holder = world.cluster.connect().await.unwrap();
    world
        .run("alter table products disable trigger all; alter table other disable trigger all")
        .await;
    holder
        .batch_execute("begin; select from pgevict.checked where target = 'products'::regclass for update")
        .await
        .unwrap();
    let start = Instant::now();
    let mut told = world.told().await;
    assert_eq!(told, ["other:"], "what is locked is left for the next check");
    assert!(start.elapsed() < Duration::from_secs(1));
    holder.batch_execute("commit").await.unwrap();
    told = world.told().await;
    told.sort();
    assert_eq!(told, ["other:", "product:"]);

    world
        .run("alter table products enable trigger all; alter table other enable trigger all")
        .await;
    let both = [
        world.cluster.connect().await.unwrap(),
        world.cluster.connect().await.unwrap(),
    ];
    let check = "select count(*) from pgevict.check_watches()";
    let found = futures::future::join_all(both.iter().map(|client| text(client, check))).await;
    assert_eq!(found, ["0", "0"]);
    assert!((2..=4).contains(&world.events().await.len()));
    assert!(world.told().await.is_empty());
}

#[tokio::test]
async fn a_dropped_table_is_told_once_and_another_one_of_its_name_at_every_check() {
    let world = World::with_products().await;
    world.run("drop table products").await;
    assert_eq!(world.check().await, "public products gone the table was dropped");
    assert_eq!(world.event().await.prefixes, HEADS);
    let functions = "select count(*) from pgevict.watch_functions()";
    assert_eq!(world.text(functions).await, "0", "its function goes too");
    assert!(world.told().await.is_empty());
    let status = "select state || ': ' || reason || ': ' || cure from pgevict.watch_status()";
    assert_eq!(
        world.text(status).await,
        "missing: the table was dropped: unwatch it"
    );

    world.run("create table products (id int)").await;
    for _ in 0..2 {
        assert_eq!(world.told().await, HEADS);
    }
    let target = world.text("select target from pgevict.watch").await;
    world.run(&format!("select pgevict.unwatch({target})")).await;
    world.events().await;
    assert_eq!(world.check().await, "");
    assert_eq!(world.text("select count(*) from pgevict.checked").await, "0");
    assert!(world.told().await.is_empty());
}

/// As after an upgrade: nobody has compared the watch yet.
#[tokio::test]
async fn a_watch_that_was_never_compared_is_told_once() {
    let world = World::with_products().await;
    world.run("delete from pgevict.checked").await;
    assert_eq!(world.told().await, HEADS);
    assert!(world.told().await.is_empty());
}

#[tokio::test]
async fn a_watch_that_cannot_be_judged_keeps_no_other_from_being_checked() {
    let world = World::with_products().await;
    world
        .run("create table other (id int primary key); select pgevict.watch('other', 'other:{id}')")
        .await;
    world.check().await;
    world.events().await;
    world
        .run("create or replace function pgevict.watch_source(definition jsonb, target oid) returns text language plpgsql \
              as $$ begin if target = 'public.products'::regclass then raise 'cannot'; end if; \
              return (select prosrc from pg_proc where proname like 'fired_' || target || '%'); end $$; \
              update pgevict.meta set functions_checksum = 'other'")
        .await;
    assert_eq!(
        world.check().await,
        "public products drifted it could not be checked: cannot"
    );
    assert_eq!(world.event().await.prefixes, HEADS);
}

/// Stands for election at once and checks as often as may be.
fn watchful(config: &mut Config) {
    config.warden.claim = Duration::from_millis(200);
    config.warden.check_interval = Duration::from_millis(200);
}

#[tokio::test]
async fn while_all_is_well_a_check_writes_and_tells_nothing() {
    let world = World::start().await;
    world.run(PRODUCTS).await;
    let app = App::start(&world, "a", watchful).await;
    app.until(|status| status.watches_not_whole == Some(0), PATIENCE)
        .await;
    // The first check works out the state.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let written = "select (select count(*) from pgevict.event) || ' ' || (select string_agg(xmin::text || ctid, ',') \
                   from pgevict.checked)";
    let before = world.text(written).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.text(written).await, before);
    world.run("begin").await;
    assert_eq!(world.check().await, "");
    let assigned = "select pg_current_xact_id_if_assigned()";
    assert_eq!(world.text(assigned).await, "NULL");
    let locked =
        "select count(*) from pg_locks where pid = pg_backend_pid() and relation = 'products'::regclass";
    assert_eq!(world.text(locked).await, "0");
    world.run("commit").await;
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn a_write_while_a_trigger_is_disabled_is_told_within_a_check() {
    let mut world = World::start().await;
    world.run(PRODUCTS).await;
    let mut app = App::start(&world, "a", |config| {
        config.warden.claim = Duration::from_millis(200);
    })
    .await;
    app.until(|status| status.watches_not_whole == Some(0), PATIENCE)
        .await;
    world
        .run("alter table products disable trigger all; update products set price = 8; delete from pgevict.event")
        .await;
    app.deliveries().await;
    let took = app
        .until(|status| status.watches_not_whole == Some(1), PATIENCE)
        .await;
    println!("told after {took:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    let listed = watches(&world.admin).await.unwrap().remove(0);
    assert!(listed.reason.unwrap().starts_with("disabled: "));
    assert!(listed.since.is_some() && listed.cure.is_some());
    assert!(world.events().await.iter().any(|event| event.prefixes == HEADS));
    world.run("alter table products enable trigger all").await;
    app.until(|status| status.watches_not_whole == Some(0), PATIENCE)
        .await;
    app.pgevict.shutdown().await;
    assert_eq!(app.pgevict.status().watches_not_whole, None);
    // Without the functions, as in an installation of before, the other chores are done.
    world.admin = world.cluster.connect().await.unwrap();
    world.run("drop function pgevict.check_watches(interval)").await;
    let app = App::start(&world, "b", |config| {
        watchful(config);
        config.warden.chores = Duration::from_millis(200);
    })
    .await;
    app.until(|status| status.warden, PATIENCE).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = app.pgevict.status();
    assert!(status.warden && status.watches_not_whole.is_none(), "{status:?}");
    let horizons: i64 = world
        .text("select count(*) from pgevict.horizon")
        .await
        .parse()
        .unwrap();
    assert!(horizons > 2, "{horizons}");
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn an_instance_may_check_and_a_reader_may_not() {
    let world = World::with(ClusterOptions::new()).await;
    world.run(PRODUCTS).await;
    world
        .run("create role i; grant pgevict_instance to i; create role r; grant pgevict_reader to r; \
              create schema hidden; create table hidden.t (id int); select pgevict.watch('hidden.t', 't:{id}'); \
              drop table hidden.t")
        .await;
    let check = "select string_agg(table_name || ' ' || state, ',') from pgevict.check_watches()";
    assert_eq!(text(&world.session_of("i").await, check).await, "t gone");
    let reader = world.session_of("r").await;
    assert_eq!(crate::support::refusal(&reader, check).await.0, "42501");
}

/// As after a restore: the triggers came along, the record did not.
#[tokio::test]
async fn a_watch_without_a_record_is_told_as_any_other() {
    let world = World::with_products().await;
    world.run("delete from pgevict.watch").await;
    assert!(world.told().await.is_empty());
    world.run("alter table products disable trigger all").await;
    for _ in 0..2 {
        assert_eq!(world.told().await, HEADS);
    }
    world.run("alter table products enable trigger all").await;
    assert_eq!(world.told().await, HEADS);
    world.run("drop table products").await;
    assert_eq!(world.told().await, HEADS);
    assert!(world.told().await.is_empty());
    assert_eq!(world.check().await, "");
}

/// A change of the table comes before what an upgrade makes look at anew, and no check takes for ever.
#[tokio::test]
async fn what_does_not_fit_into_one_check_is_left_for_the_next() {
    let world = World::with_products().await;
    for n in 0..5 {
        world
            .run(&format!(
                "create table t{n} (id int); select pgevict.watch('t{n}', 't{n}:{{id}}')"
            ))
            .await;
    }
    world.run("alter table t0 disable trigger all").await;
    world.check().await;
    world.events().await;
    world
        .run("update pgevict.meta set functions_checksum = 'other'; alter table products add column more int")
        .await;
    let left = "select count(*) from pgevict.watch_fingerprints() f join pgevict.checked c using (target) \
                where c.basis <> f.basis";
    let check = "select string_agg(table_name, ',') from pgevict.check_watches('0')";
    assert_eq!(
        world.text(check).await,
        "t0",
        "what is known not to be whole is still said"
    );
    let prefixes = async || {
        let events = world.events().await;
        let mut all: Vec<_> = events.into_iter().flat_map(|event| event.prefixes).collect();
        all.dedup();
        all
    };
    assert_eq!(prefixes().await, ["product:", "t0:"], "and told");
    assert_eq!(world.text(left).await, "5");
    for n in (0..5).rev() {
        world.run(check).await;
        assert_eq!(world.text(left).await, n.to_string());
    }
    assert_eq!(prefixes().await, ["t0:"]);
}

/// As in an installation of schema version 2, whose function says less.
#[tokio::test]
async fn an_older_installation_lists_its_watches_without_a_reason() {
    let world = World::with_products().await;
    world.run("alter table products disable trigger all").await;
    world
        .run("alter function pgevict.watch_status() rename to now; create function pgevict.watch_status( \
              out target oid, out schema_name text, out table_name text, out definition jsonb, out state text) \
              returns setof record language sql as \
              $$ select target, schema_name, table_name, definition, state from pgevict.now() $$")
        .await;
    let listed = watches(&world.admin).await.unwrap().remove(0);
    assert_eq!(listed.state, WatchState::Drifted);
    assert!(listed.reason.is_none() && listed.since.is_none() && listed.detached.is_empty());
}
