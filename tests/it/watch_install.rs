//! Installing, replacing, listing and removing watches; what watch() refuses; drift and restore.

use pgevict::lab::ClusterOptions;
use pgevict::store::watch::{
    Headless, LOCK_LIMIT, WatchDefinition, WatchState, Watched, unwatch, watch, watches,
};

use crate::support::{World, refusal};
use crate::watch::{PRODUCTS, products};

#[tokio::test]
async fn a_schema_change_drops_prefixes_until_the_table_is_watched_again() {
    let mut world = products().await;
    let wide = ["category:", "product:"];
    for (change, back) in [
        (
            "alter table products rename category_id to other",
            "alter table products rename other to category_id",
        ),
        (
            "alter table products rename id to i; alter table products rename category_id to id; alter table products rename i to category_id",
            "alter table products rename id to i; alter table products rename category_id to id; alter table products rename i to category_id",
        ),
    ] {
        world.run(change).await;
        world.run("insert into products values (1, 2)").await;
        assert_eq!(world.event().await.prefixes, wide, "{change}");
        assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Drifted);
        world.run(back).await;
        world.run("delete from products").await;
        assert_eq!(world.event().await.keys, ["product:1"], "{back}");
        assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    }
    world
        .run("alter table products add extra int default 3; alter table products alter id type bigint")
        .await;
    world.run("insert into products values (5, 6)").await;
    assert_eq!(world.event().await.keys, ["product:5"]);
    world.run("alter table products drop category_id").await;
    world.run("update products set extra = 4").await;
    assert_eq!(world.event().await.prefixes, wide);
    world
        .run("alter table products rename to goods; insert into goods values (6)")
        .await;
    assert_eq!(world.event().await.kind.as_deref(), Some("products.created"));
    let definition = WatchDefinition::new("goods").key("product:{id}");
    assert_eq!(
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
        Watched::Replaced
    );
    let events = world.events().await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].prefixes, wide);
    assert_eq!(events[1].prefixes, ["product:"]);
    world.run("insert into goods values (7)").await;
    assert_eq!(world.event().await.kind.as_deref(), Some("goods.created"));
    world
        .run("alter table goods disable trigger pgevict_update")
        .await;
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Drifted);
    assert_eq!(
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
        Watched::Replaced
    );
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    world.run("drop table goods").await;
    let listed = watches(&world.admin).await.unwrap();
    assert_eq!(listed[0].state, WatchState::Missing);
    assert_eq!(listed[0].definition.key.as_deref(), Some("product:{id}"));
    assert!(unwatch(&mut world.admin, "goods", LOCK_LIMIT).await.unwrap());
    assert!(watches(&world.admin).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused_with_the_cure() {
    let world = World::start().await;
    let major = world.cluster.major_version();
    world.run("create table p (id int primary key, a text, b text, \"schema\" text); create view v as select 1 as id; \
        create materialized view m as select 1 as id; create table parts (id int) partition by range (id); \
        create table part partition of parts for values from (1) to (10); \
        create table mid partition of parts for values from (10) to (20) partition by range (id); \
        create table subpart partition of mid for values from (10) to (20); \
        create table far (id int) partition by range (id); create foreign data wrapper w; create server far foreign data wrapper w; \
        create foreign table far_1 partition of far for values from (1) to (10) server far; create table base (id int); \
        create table child () inherits (base); create temp table tmp (id int); \
        create domain citext as text; create domain own_citext as citext; create table c (id own_citext); \
        create sequence s").await;
    for (call, code, words) in [
        ("'v', 'v:{id}'", "0A000", "view"),
        ("'m', 'm:{id}'", "0A000", "REFRESH"),
        (
            "'part', 'p:{id}'",
            "0A000",
            "a partition of public.parts (Watch public.parts:",
        ),
        (
            "'subpart', 'p:{id}'",
            "0A000",
            "a partition of public.mid (Watch public.parts:",
        ),
        (
            "'far', 'p:{id}'",
            "0A000",
            "the partition public.far_1, a foreign table",
        ),
        ("'base', 'p:{id}'", "0A000", "is inherited from by public.child"),
        ("'child', 'p:{id}'", "0A000", "inherits from public.base"),
        ("'s', 'p:x'", "0A000", "sequence"),
        ("'tmp', 'p:{id}'", "22023", "temporary"),
        ("'pgevict.event', 'p:{id}'", "22023", "pgevict itself"),
        ("'pg_class', 'p:{oid}'", "22023", "system table"),
        ("'nope', 'p:{id}'", "42P01", "nope"),
        ("4000000000::oid::regclass, 'p:{id}'", "42P01", "does not exist"),
        ("'p', 'p:{nope}'", "42703", "Its columns: id, a, b, schema"),
        ("'p', 'p:{ctid}'", "42703", "ctid"),
        (
            "'p', 'p:{id}', columns => array['price']",
            "42703",
            "columns names price",
        ),
        ("'p', 'p:{id}', columns => '{}'", "22023", "empty list"),
        ("'p', 'p:{a}{b}'", "22023", "separator"),
        ("'p', 'p:{a}-{b}'", "22023", "separator"),
        ("'p', 'p:{a}%{b}'", "22023", "separator"),
        ("'p', 'p:{id', array['x']", "22023", "brace"),
        ("'p', 'p:id}'", "22023", "brace"),
        ("'p', 'p:{}'", "22023", "brace"),
        ("'p', 'p:{{id}}'", "22023", "brace"),
        ("'p', 'p:{schema}:{id}'", "22023", "ambiguous"),
        ("'p', '{id}'", "22023", "flush_ok"),
        ("'p', 'p:{id}', array['{a}']", "22023", "tags template"),
        (
            "'p', 'p:{id}', prefixes => array['']",
            "22023",
            "prefixes holds an empty template",
        ),
        ("'p', null", "22023", "no key"),
        ("'p', 'p:{id}', array[null]", "22023", "tags"),
        (
            "'parts', 'p:{id}', changes => true",
            "0A000",
            "changes => true on a partitioned table",
        ),
        (
            "'p', 'p:{id}', changes => true, fire_on_replica => true",
            "0A000",
            "changes => true with fire_on_replica",
        ),
        ("'p', 'p:{id}', escalate_above => -1", "22023", "escalate_above"),
        ("'c', 'c:{id}'", "0A000", "different texts are equal"),
    ] {
        let (found, message) = refusal(&world.admin, &format!("select pgevict.watch({call})")).await;
        assert_eq!(found, code, "{call}: {message}");
        assert!(message.contains(words), "{call}: {message}");
    }
    // Not every build knows ICU.
    let icu = "create collation ci (provider = icu, locale = 'und', deterministic = false); create table nd (id text collate ci)";
    if world.admin.batch_execute(icu).await.is_ok() {
        let (code, message) = refusal(&world.admin, "select pgevict.watch('nd', 'nd:{id}')").await;
        assert_eq!(code, "0A000");
        assert!(message.contains("different texts are equal"), "{message}");
    }
    if major >= 18 {
        world
            .run("create table g (id int, x int generated always as (id * 2) virtual)")
            .await;
        for call in ["'g', 'g:{x}'", "'g', 'g:{id}', columns => array['x']"] {
            let (code, message) = refusal(&world.admin, &format!("select pgevict.watch({call})")).await;
            assert_eq!(code, "0A000");
            assert!(message.contains("virtual generated"), "{message}");
        }
        world.run("select pgevict.watch('g', 'g:{id}')").await;
    }
    assert_eq!(
        world.text("select count(*) from pg_trigger t where tgfoid in (select function from pgevict.watch_functions()) and tgrelid <> coalesce(to_regclass('g'), 0)").await,
        "0"
    );
}

#[tokio::test]
async fn a_template_without_a_head_empties_everything_if_allowed() {
    let mut world = World::start().await;
    world.run("create table t (id int)").await;
    let mut definition = WatchDefinition::new("t").key("{id}");
    let error = watch(&mut world.admin, &definition, LOCK_LIMIT)
        .await
        .unwrap_err();
    assert!(
        error.is_invalid() && error.to_string().contains("flush_ok"),
        "{error}"
    );
    definition.headless = Headless::Flush;
    watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    assert!(world.event().await.flush);
    world.run("insert into t values (5)").await;
    assert_eq!(world.event().await.keys, ["5"]);
    world.run("truncate t").await;
    let event = world.event().await;
    assert!(event.flush);
    assert_eq!(event.kind.as_deref(), Some("t.truncated"));
}

#[tokio::test]
async fn watching_again_the_same_way_locks_and_writes_nothing() {
    let mut world = World::with(ClusterOptions::new().setting("log_statement", "ddl")).await;
    world.run(PRODUCTS).await;
    let definition = WatchDefinition::new("products")
        .key("product:{id}")
        .tag("category:{category_id}");
    watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
    world.events().await;
    let state = "select string_agg(xmin::text, ',') from pg_trigger where tgrelid = 'products'::regclass";
    let before = world.text(state).await;
    let writer = world.cluster.connect().await.unwrap();
    writer
        .batch_execute("begin; insert into products values (1)")
        .await
        .unwrap();
    for _ in 0..5 {
        assert_eq!(
            watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
            Watched::Unchanged
        );
    }
    assert_eq!(world.text(state).await, before);
    assert!(world.events().await.is_empty());
    writer.batch_execute("rollback").await.unwrap();
    assert!(unwatch(&mut world.admin, "products", LOCK_LIMIT).await.unwrap());
    assert_eq!(world.event().await.prefixes, ["category:", "product:"]);
    assert!(!unwatch(&mut world.admin, "products", LOCK_LIMIT).await.unwrap());
    assert!(
        unwatch(&mut world.admin, "nowhere", LOCK_LIMIT)
            .await
            .unwrap_err()
            .is_invalid()
    );
    assert!(
        watch(
            &mut world.admin,
            &WatchDefinition::new("no;where").key("a:b"),
            LOCK_LIMIT
        )
        .await
        .unwrap_err()
        .is_invalid()
    );
}

#[tokio::test]
async fn two_who_watch_at_once_end_with_one_watch() {
    let world = World::start().await;
    world.run(PRODUCTS).await;
    let mut tasks = Vec::new();
    for n in 0..4 {
        let mut client = world.cluster.connect().await.unwrap();
        let definition = WatchDefinition::new("products").key(format!("product{}:{{id}}", n % 2));
        tasks.push(tokio::spawn(async move {
            watch(&mut client, &definition, LOCK_LIMIT).await.unwrap()
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    assert_eq!(
        world
            .text("select count(*) from pg_trigger where not tgisinternal and tgrelid = 'products'::regclass")
            .await,
        "4"
    );
}

#[tokio::test]
async fn a_restored_table_is_watched_by_the_names_of_its_columns() {
    let world = World::start().await;
    world.run("create table t (gone int, id int primary key, x int); alter table t drop gone; \
        select pgevict.watch('t', 't:{id}', array['x:{x}']); insert into t values (1, 2); select pgevict.emit(array['old']); \
        select pgevict.beat_heart('i', gen_random_uuid(), 1, pg_current_snapshot())").await;
    let epoch = world.text("select epoch from pgevict.establish()").await;
    world.cluster.create_database("copy").await.unwrap();
    let dump = world.cluster.data_dir().with_file_name("dump.sql");
    let dumped = world
        .cluster
        .command("pg_dump")
        .arg("-f")
        .arg(&dump)
        .output()
        .await
        .unwrap();
    assert!(dumped.status.success(), "{dumped:?}");
    let restored = world
        .cluster
        .command("psql")
        .args(["-X", "-v", "ON_ERROR_STOP=1", "-d", "copy", "-f"])
        .arg(&dump)
        .output()
        .await
        .unwrap();
    assert!(restored.status.success(), "{restored:?}");
    let copy = world.cluster.connect_to("copy").await.unwrap();
    let of = async |sql: &str| crate::support::text(&copy, sql).await;
    // Another log: what came along is not its own.
    assert_eq!(of("select fresh from pgevict.establish()").await, "t");
    assert_ne!(of("select epoch from pgevict.establish()").await, epoch);
    assert_eq!(of("select count(*) from pgevict.event").await, "0");
    copy.batch_execute("update t set x = 3").await.unwrap();
    assert_eq!(
        of("select keys || tags from pgevict.event").await,
        "{t:1,x:2,x:3}"
    );
    assert_eq!(
        of("select string_agg(state, ',') from pgevict.watch_status()").await,
        "ok"
    );

    // Data alone, into a schema that is installed and lives: neither fails nor wins.
    let identity = of("select epoch from pgevict.meta").await;
    copy.batch_execute("truncate t").await.unwrap();
    let dumped = world
        .cluster
        .command("pg_dump")
        .args(["--data-only", "-f"])
        .arg(&dump)
        .output()
        .await
        .unwrap();
    assert!(dumped.status.success(), "{dumped:?}");
    let restored = world
        .cluster
        .command("psql")
        .args(["-X", "-v", "ON_ERROR_STOP=1", "-d", "copy", "-f"])
        .arg(&dump)
        .output()
        .await
        .unwrap();
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(of("select epoch from pgevict.meta").await, identity);
    assert_eq!(of("select epoch from pgevict.epoch").await, identity);
    assert_eq!(
        of("select count(*) from pgevict.event where 'old' = any (keys)").await,
        "0"
    );
}
