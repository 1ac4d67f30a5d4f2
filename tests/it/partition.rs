//! Partitioned tables: every row is told, whichever table the statement names, and a statement through the parent as a
//! whole.

use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, WatchState, Watched, unwatch, watch, watches};

use crate::support::{Logged, World};

/// Leaves: low (columns as the parent's), high_1 and high_2 below high, and odd, attached, with others' numbers.
const PARTS: &str = "create table parts (gone int, id int, grp int, v int, primary key (id)) partition by range (id); \
     alter table parts drop gone; \
     create table low partition of parts for values from (0) to (100); \
     create table high partition of parts for values from (100) to (300) partition by range (id); \
     create table high_1 partition of high for values from (100) to (200); \
     create table high_2 partition of high for values from (200) to (300); \
     create table odd (v int, x text, grp int, y text, id int not null primary key); \
     alter table odd drop x, drop y; alter table parts attach partition odd for values from (300) to (400)";

pub(crate) async fn parts() -> World {
    let mut world = World::start().await;
    world.run(PARTS).await;
    let definition = definition();
    assert_eq!(
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
        Watched::Installed
    );
    assert_eq!(
        watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap(),
        Watched::Unchanged
    );
    assert_eq!(watches(&world.admin).await.unwrap().len(), 1);
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    world.events().await;
    world
}

fn definition() -> WatchDefinition {
    WatchDefinition::new("parts").key("part:{id}").tag("grp:{grp}")
}

pub(crate) fn keys(events: &[Logged]) -> Vec<String> {
    let mut keys: Vec<_> = events.iter().flat_map(|event| event.keys.clone()).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn a_statement_through_the_parent_is_one_event_and_a_direct_row_is_one() {
    let world = parts().await;
    for (sql, verb, keys, tags) in [
        (
            "insert into parts (id, grp, v) values (1, 7, 0), (100, 7, 0), (200, 8, 0), (300, 8, 0)",
            "created",
            &["part:1", "part:100", "part:200", "part:300"][..],
            &["grp:7", "grp:8"][..],
        ),
        (
            "update parts set v = 1",
            "updated",
            &["part:1", "part:100", "part:200", "part:300"],
            &["grp:7", "grp:8"],
        ),
        (
            "update parts set id = 250 where id = 1",
            "updated",
            &["part:1", "part:250"],
            &["grp:7"],
        ),
        (
            "update odd set grp = 9",
            "updated",
            &["part:300"],
            &["grp:8", "grp:9"],
        ),
        (
            "update high_1 set id = 101",
            "updated",
            &["part:100", "part:101"],
            &["grp:7"],
        ),
        (
            "insert into low (id, grp) values (2, 7)",
            "created",
            &["part:2"],
            &["grp:7"],
        ),
        ("delete from low", "deleted", &["part:2"], &["grp:7"]),
        (
            "delete from parts",
            "deleted",
            &["part:101", "part:200", "part:250", "part:300"],
            &["grp:7", "grp:8", "grp:9"],
        ),
        (
            "copy parts (id) from program 'seq 98 102'",
            "created",
            &["part:100", "part:101", "part:102", "part:98", "part:99"],
            &["grp:%N"],
        ),
        ("truncate parts", "truncated", &[], &[]),
    ] {
        world.run(sql).await;
        let event = world.event().await;
        assert_eq!(event.keys, keys, "{sql}");
        assert_eq!(event.tags, tags, "{sql}");
        assert_eq!(
            event.kind.as_deref(),
            Some(format!("parts.{verb}").as_str()),
            "{sql}"
        );
        assert_eq!(event.entity_type.as_deref(), Some("parts"), "{sql}");
    }
    // What has been said is over by the end of the statement: later rows of the transaction are told one by one.
    world
        .run(
            "begin; insert into parts (id, v) values (1, 1), (101, 1), (102, 1), (201, 1); \
              insert into low (id) values (10), (11), (12); commit",
        )
        .await;
    let events = world.events().await;
    assert_eq!(
        events.iter().map(|event| event.keys.len()).collect::<Vec<_>>(),
        [4, 1, 1, 1]
    );
    // A table in the middle has no triggers that tell of its statements. A move is the end of one row and another.
    world.run("update high set id = id + 150 where id = 101").await;
    let events = world.events().await;
    assert_eq!(keys(&events), ["part:101", "part:251"]);
    world
        .run(
            "merge into parts p using (values (1), (60)) v (id) on p.id = v.id when matched then delete \
               when not matched then insert (id) values (v.id)",
        )
        .await;
    let events = world.events().await;
    assert_eq!(events.len(), 2);
    assert_eq!(keys(&events), ["part:1", "part:60"]);
    world.run("merge into low p using (values (10), (61)) v (id) on p.id = v.id when matched then update set v = 5 \
               when not matched then insert (id) values (v.id)").await;
    assert_eq!(keys(&world.events().await), ["part:10", "part:61"]);
}

#[tokio::test]
async fn many_rows_through_the_parent_are_one_event_per_thousand() {
    let world = parts().await;
    world
        .run(
            "select pgevict.watch('parts', 'part:{id}', escalate_above => 5000); \
              create table more partition of parts for values from (1000) to (9000)",
        )
        .await;
    world.events().await;
    world
        .run("insert into parts (id, v) select n, 1 from generate_series(1001, 3500) n")
        .await;
    let counts = |events: &[Logged]| events.iter().map(|event| event.keys.len()).collect::<Vec<_>>();
    assert_eq!(counts(&world.events().await), [1000, 1000, 500]);
    world.run("update parts set id = id + 3000 where id < 2001").await;
    assert_eq!(counts(&world.events().await), [2000]);
    world
        .run("insert into parts (id) select n from generate_series(3501, 9000 - 1) n on conflict do nothing")
        .await;
    world.events().await;
    world.run("delete from parts").await;
    let event = world.event().await;
    assert_eq!(event.prefixes, ["part:"]);
    world
        .run("insert into more (id) select n from generate_series(1001, 1200) n")
        .await;
    assert_eq!(world.events().await.len(), 200);
}

#[tokio::test]
async fn columns_composite_keys_and_constants_count_for_direct_rows_too() {
    let world = parts().await;
    world
        .run("select pgevict.watch('parts', 'part:{grp}:{id}', array['all', 'grp:{grp}'], array['p:{grp}:'], array['v'])")
        .await;
    world.run("insert into low (id, grp, v) values (1, 2, 3)").await;
    world.run("insert into odd (id, grp, v) values (301, 2, 3)").await;
    world.events().await;
    for table in ["low", "odd", "parts"] {
        world
            .run(&format!("update {table} set grp = grp where id in (1, 301)"))
            .await;
        assert!(world.events().await.is_empty(), "{table}");
    }
    world.run("update odd set grp = 4").await;
    let event = world.event().await;
    assert_eq!(event.keys, ["part:2:301", "part:4:301"]);
    assert_eq!(event.tags, ["all", "grp:2", "grp:4"]);
    assert_eq!(event.prefixes, ["p:2:", "p:4:"]);
    world
        .run("select pgevict.watch('parts', 'part:{id}', escalate_above => 0)")
        .await;
    world.events().await;
    world.run("delete from low").await;
    assert_eq!(world.event().await.prefixes, ["part:"]);
    world
        .run("select pgevict.watch('parts', '{id}', flush_ok => true)")
        .await;
    world.events().await;
    world.run("truncate odd").await;
    assert!(world.event().await.flush);
}

#[tokio::test]
async fn what_did_not_change_is_not_told() {
    let world = parts().await;
    world
        .run("insert into parts (id, grp, v) values (1, 1, 1), (100, 1, 1)")
        .await;
    world.events().await;
    for sql in [
        "update parts set v = v",
        "update low set v = v",
        "update high set v = v",
        "update low set v = 2 where id = 50",
        "insert into parts (id) values (1) on conflict do nothing",
        "insert into low (id) values (1) on conflict do nothing",
    ] {
        world.run(sql).await;
        assert!(world.events().await.is_empty(), "{sql}");
    }
}

#[tokio::test]
async fn partitions_come_and_go() {
    let mut world = parts().await;
    world
        .run("create table later partition of parts for values from (400) to (500); create table joined (like parts including all); \
              insert into joined (id) values (500); alter table parts attach partition joined for values from (500) to (600); \
              alter table parts detach partition low")
        .await;
    for table in ["later", "joined"] {
        world
            .run(&format!(
                "insert into {table} (id) values ({})",
                if table == "later" { 401 } else { 501 }
            ))
            .await;
        assert_eq!(world.event().await.kind.as_deref(), Some("parts.created"));
    }
    world.run("insert into low (id) values (5)").await;
    assert!(world.events().await.is_empty(), "detached");
    world.run("truncate high").await;
    let all = world.events().await;
    assert!(
        !all.is_empty() && all.iter().all(|event| event.prefixes == ["grp:", "part:"]),
        "{all:?}"
    );
    world.run("truncate later").await;
    assert!(world.events().await.is_empty(), "no trigger yet");
    assert_eq!(
        watch(&mut world.admin, &definition(), LOCK_LIMIT).await.unwrap(),
        Watched::Replaced
    );
    assert_eq!(
        watch(&mut world.admin, &definition(), LOCK_LIMIT).await.unwrap(),
        Watched::Unchanged
    );
    world.events().await;
    world.run("truncate later").await;
    assert_eq!(world.event().await.kind.as_deref(), Some("parts.truncated"));

    // A table of that name, watched under another one, keeps nothing of before.
    world.run("alter table parts rename to pieces").await;
    let renamed = WatchDefinition::new("pieces").key("part:{id}");
    assert_eq!(
        watch(&mut world.admin, &renamed, LOCK_LIMIT).await.unwrap(),
        Watched::Replaced
    );
    world.events().await;
    world.run("insert into odd (id) values (301)").await;
    assert_eq!(world.event().await.kind.as_deref(), Some("pieces.created"));

    assert!(unwatch(&mut world.admin, "pieces", LOCK_LIMIT).await.unwrap());
    assert_eq!(
        world
            .text("select count(*) from pg_trigger where tgname like 'pgevict%'")
            .await,
        "0",
        "low, detached, too"
    );
    assert_eq!(
        world
            .text("select count(*) from pg_proc where pronamespace = 'pgevict'::regnamespace and proname like 'fired%'")
            .await,
        "0"
    );
}

#[tokio::test]
async fn a_schema_change_of_a_partitioned_table_never_fails_a_write() {
    let world = parts().await;
    let wide = ["grp:", "part:"];
    let warm = world.cluster.connect().await.unwrap();
    world.run("alter table parts rename grp to other").await;
    for client in [&warm, &world.admin] {
        world.events().await;
        client
            .batch_execute("insert into low (id) values (2); insert into odd (id) values (302); insert into parts (id) values (3); delete from parts")
            .await
            .unwrap();
        let events = world.events().await;
        assert_eq!(events.len(), 4);
        assert!(events.iter().all(|event| event.prefixes == wide), "{events:?}");
    }
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Drifted);
    world
        .run("alter table parts rename v to grp; alter table parts rename other to v")
        .await;
    for client in [&warm, &world.admin] {
        world.events().await;
        client
            .batch_execute("insert into low (id, grp) values (2, 1); update odd set grp = 2; delete from low")
            .await
            .unwrap();
        let events = world.events().await;
        assert_eq!(events.len(), 2);
        assert!(events.iter().all(|event| event.prefixes == wide), "{events:?}");
    }
    world.run("alter table parts rename grp to x; alter table parts rename v to grp; alter table parts rename x to v").await;
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    world.run("insert into low (id) values (4)").await;
    assert_eq!(world.event().await.keys, ["part:4"]);
    world
        .run("alter table parts drop grp, alter v type text using v::text")
        .await;
    for client in [&warm, &world.admin] {
        world.run("delete from parts").await;
        world.events().await;
        client
            .batch_execute(
                "insert into low (id) values (5); insert into odd (id) values (305); update low set v = 'x'",
            )
            .await
            .unwrap();
        let events = world.events().await;
        assert_eq!(events.len(), 3);
        assert!(events.iter().all(|event| event.prefixes == wide), "{events:?}");
    }
}

#[tokio::test]
async fn a_clone_that_is_switched_off_is_a_drift() {
    let mut world = parts().await;
    let row = world
        .text("select tgname from pg_trigger where tgrelid = 'odd'::regclass and tgname like 'pgevict_row%'")
        .await;
    for sql in [
        format!("alter table odd disable trigger {row}"),
        format!(
            "alter table only parts disable trigger {}",
            row.replace("_row_", "_after_")
        ),
        format!("drop trigger {} on parts", row.replace("_row_", "_before_")),
        format!("drop trigger {row} on parts"),
    ] {
        world.run(&sql).await;
        assert_eq!(
            watches(&world.admin).await.unwrap()[0].state,
            WatchState::Drifted,
            "{sql}"
        );
        assert_eq!(
            watch(&mut world.admin, &definition(), LOCK_LIMIT).await.unwrap(),
            Watched::Replaced
        );
        assert_eq!(
            watches(&world.admin).await.unwrap()[0].state,
            WatchState::Ok,
            "{sql}"
        );
        world.events().await;
        world
            .run("begin; insert into odd (id) values (301); rollback")
            .await;
    }
}

#[tokio::test]
async fn a_trigger_of_the_same_name_elsewhere_is_no_drift() {
    let world = parts().await;
    world
        .run(
            "create table stranger (id int); \
             create function nothing() returns trigger language plpgsql as 'begin return null; end'; \
             do $$ declare name text; begin \
               for name in select tgname from pg_trigger where tgname ~ '^pgevict_(row|before|after)_' \
                 and tgrelid = 'parts'::regclass \
               loop \
                 execute format('create trigger %I after insert on stranger execute function nothing()', name); \
               end loop; \
             end $$; \
             alter table stranger disable trigger all",
        )
        .await;
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
}

#[tokio::test]
async fn a_partition_in_use_is_waited_for_100_ms_only() {
    let world = World::start().await;
    world.run(PARTS).await;
    let writers = [
        world.cluster.connect().await.unwrap(),
        world.cluster.connect().await.unwrap(),
    ];
    writers[0]
        .batch_execute("begin; insert into odd (id) values (300)")
        .await
        .unwrap();
    writers[1]
        .batch_execute("begin; insert into high_2 (id) values (200)")
        .await
        .unwrap();
    let started = std::time::Instant::now();
    let (code, _) = crate::support::refusal(&world.admin, "select pgevict.watch('parts', 'part:{id}')").await;
    assert_eq!(code, "55P03");
    assert!(
        started.elapsed() < std::time::Duration::from_millis(450),
        "{:?}",
        started.elapsed()
    );
    for writer in &writers {
        writer.batch_execute("commit").await.unwrap();
    }
    world.run("select pgevict.watch('parts', 'part:{id}')").await;
}

/// A renamed table gets triggers of other names. The old ones can only be dropped where nobody reads.
#[tokio::test]
async fn partitions_that_are_read_one_after_the_other_hold_up_nobody() {
    let world = World::start().await;
    world
        .run("create table parts (id int primary key) partition by range (id)")
        .await;
    let mut readers = Vec::new();
    for n in 0..10 {
        let sql = format!("create table part_{n} partition of parts for values from ({n}) to ({n} + 1)");
        world.run(&sql).await;
    }
    world
        .run("select pgevict.watch('parts', 'part:{id}'); alter table parts rename to renamed")
        .await;
    for n in 0..10 {
        let reader = world.cluster.connect().await.unwrap();
        reader
            .batch_execute(&format!("begin; select from part_{n}"))
            .await
            .unwrap();
        readers.push(reader);
    }
    let reading = tokio::spawn(async move {
        // In the order in which dropping the trigger of the parent locks them.
        for reader in readers.iter().rev() {
            tokio::time::sleep(std::time::Duration::from_millis(70)).await;
            reader.batch_execute("commit").await.unwrap();
        }
    });
    let started = std::time::Instant::now();
    let (code, _) =
        crate::support::refusal(&world.admin, "select pgevict.watch('renamed', 'part:{id}')").await;
    assert_eq!(code, "55P03");
    assert!(
        started.elapsed() < std::time::Duration::from_millis(450),
        "{:?}",
        started.elapsed()
    );
    reading.await.unwrap();
    world.run("select pgevict.watch('renamed', 'part:{id}')").await;
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    assert_eq!(
        world
            .text("select count(distinct tgname) from pg_trigger where tgname ~ '^pgevict_row_'")
            .await,
        "1"
    );
}

/// What the watch adds to a bulk load through the parent; a smoke alarm, far off what it takes.
#[tokio::test]
async fn a_bulk_load_through_the_parent_keeps_its_speed() {
    let world = World::start().await;
    for name in ["plain", "watched"] {
        world
            .run(&format!(
                "create table {name} (id int, grp int, v text) partition by range (id); \
                 create table {name}_1 partition of {name} for values from (0) to (50000); \
                 create table {name}_2 partition of {name} for values from (50000) to (200000)"
            ))
            .await;
    }
    world.run("select pgevict.watch('watched', 'watched:{id}')").await;
    let time = async |name: &str| {
        let start = std::time::Instant::now();
        world
            .run(&format!(
                "insert into {name} select n, n % 7, 'value ' || n from generate_series(1, 100000) n"
            ))
            .await;
        start.elapsed()
    };
    let (mut plain, mut watched) = (std::time::Duration::MAX, std::time::Duration::MAX);
    for _ in 0..3 {
        plain = plain.min(time("plain").await);
        watched = watched.min(time("watched").await);
    }
    println!("100,000 rows: {plain:?} unwatched, {watched:?} watched");
    assert!(watched < plain * 4 + std::time::Duration::from_secs(1));
}

#[tokio::test]
async fn an_owner_watches_his_partitions_and_writers_need_no_right_of_ours() {
    let world = World::start().await;
    world
        .run(&format!(
            "create role app; grant pgevict_admin to app; create role writer; grant all on schema public to app; \
             set role app; {PARTS}; reset role; grant insert, update, delete on parts, low to writer"
        ))
        .await;
    let app = world.session_of("app").await;
    app.batch_execute("select pgevict.watch('parts', 'part:{id}', fire_on_replica => true)")
        .await
        .unwrap();
    world.events().await;
    let writer = world.session_of("writer").await;
    writer
        .batch_execute(
            "set search_path = ''; insert into public.parts (id) values (1), (101); insert into public.low (id) values (2)",
        )
        .await
        .unwrap();
    // What anybody may set breaks no write.
    let token = world
        .text("select substr(tgname, 13) from pg_trigger where tgrelid = 'parts'::regclass and tgname like 'pgevict_row%'")
        .await;
    writer
        .batch_execute(&format!(
            "set pgevict.through_{token} = 'nonsense'; set pgevict.direct_{token} = '-1'; \
             insert into public.parts (id) values (3); insert into public.low (id) values (4)"
        ))
        .await
        .unwrap();
    let mut found = keys(&world.events().await);
    found.dedup();
    assert_eq!(found, ["part:1", "part:101", "part:2", "part:3", "part:4"]);
    app.batch_execute("select pgevict.unwatch('parts')")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_restored_partitioned_table_goes_on_being_watched() {
    let world = parts().await;
    world
        .run("insert into parts (id, grp) values (1, 1), (301, 1)")
        .await;
    world.cluster.create_database("copy").await.unwrap();
    let dump = world.cluster.data_dir().with_file_name("parts.sql");
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
    assert_eq!(of("select fresh from pgevict.establish()").await, "t");
    copy.batch_execute(
        "update parts set v = 1; update odd set v = 2; insert into low (id, grp) values (7, 8)",
    )
    .await
    .unwrap();
    assert_eq!(
        of("select string_agg(array_to_string(keys || tags, ','), ';' order by id) from pgevict.event").await,
        "part:1,part:301,grp:1;part:301,grp:1;part:7,grp:8"
    );
    assert_eq!(
        of("select string_agg(state, ',') from pgevict.watch_status()").await,
        "ok"
    );
    assert_eq!(of("select pgevict.watch('parts', 'part:{id}')").await, "replaced");
    assert_eq!(
        of("select count(distinct tgfoid) from pg_trigger where tgname like 'pgevict_row%'").await,
        "1"
    );
    assert_eq!(of("select pgevict.unwatch('parts')").await, "t");
    assert_eq!(
        of("select count(*) from pg_trigger where tgname like 'pgevict%'").await,
        "0"
    );
}
