//! Rows of partitioned tables, changed through any table, at any depth, amid other statements: each is told.

use crate::partition::{keys, parts};

/// Ways to change a partition while a statement through the parent is under way.
#[tokio::test]
async fn a_direct_row_is_told_whatever_else_is_under_way() {
    let world = parts().await;
    world
        .run("create function poke(which int) returns int language plpgsql as $$ begin \
                update low set v = coalesce(v, 0) + 1 where id = which; return which; end $$; \
              create table ref (id int primary key); insert into ref values (1), (2), (3); \
              alter table parts add r int references ref on delete cascade on update cascade; \
              create function on_ref() returns trigger language plpgsql as $$ begin perform poke(50); return null; end $$; \
              create trigger a_ref after delete on ref for each row execute function on_ref(); \
              create trigger zz_ref after delete on ref for each row execute function on_ref(); \
              create function on_part() returns trigger language plpgsql as $$ begin \
                if new.v = 13 then perform poke(50); end if; return new; end $$; \
              create trigger b_part before insert on parts for each row execute function on_part(); \
              create trigger z_part after insert on parts for each row execute function on_part(); \
              insert into parts (id, r) values (50, null), (51, 1), (101, 1), (201, 2), (52, 2), (53, 3)")
        .await;
    for (sql, wanted) in [
        (
            "with a as (update low set v = 1 where id = 50 returning id), b as (insert into parts (id) values (110) returning id) \
             select * from a, b",
            &["part:110", "part:50"][..],
        ),
        (
            "with b as (insert into parts (id) values (111), (112) returning id), a as (update low set v = 2 where id = 50 returning id) \
             select * from b, a",
            &["part:111", "part:112", "part:50"],
        ),
        // The partition's statement is begun, then the parent's, which ends before the partition's goes on.
        (
            "with a as (update low set v = 3 where id in (50, 51, 52) returning id), \
               b as (insert into parts (id) values (113) returning id) \
             select (select count(*) from b where a.id > 0) from a",
            &["part:113", "part:50", "part:51", "part:52"],
        ),
        (
            "insert into parts (id) select poke(50) + 70",
            &["part:120", "part:50"],
        ),
        (
            "update parts set v = poke(50) where id = 101",
            &["part:101", "part:50"],
        ),
        (
            "insert into parts (id, v) values (130, 13)",
            &["part:130", "part:50"],
        ),
        (
            "insert into parts (id, v) values (131, 13), (132, 1)",
            &["part:131", "part:132", "part:50"],
        ),
        (
            "begin; do $$ begin insert into parts (id) values (133), (133); exception when others then null; end $$; \
          insert into low (id) values (33); savepoint s; insert into parts (id) values (134); rollback to s; \
          insert into low (id) values (34); commit",
            &["part:33", "part:34"],
        ),
        (
            "delete from ref where id = 1",
            &["part:101", "part:50", "part:51"],
        ),
        ("update ref set id = 4 where id = 2", &["part:201", "part:52"]),
        (
            "begin; delete from ref where id in (3, 4); do $$ begin perform poke(50); end $$; commit",
            &["part:201", "part:50", "part:52", "part:53"],
        ),
    ] {
        world.events().await;
        world.run(sql).await;
        let events = world.events().await;
        let mut found = keys(&events);
        found.dedup();
        assert_eq!(found, wanted, "{sql}: {events:?}");
    }
}

#[tokio::test]
async fn two_watched_parents_in_one_statement_are_told_apart() {
    let world = parts().await;
    world
        .run("create table others (id int) partition by range (id); create table other partition of others for values from (0) to (1000); \
              select pgevict.watch('others', 'other:{id}')")
        .await;
    world.events().await;
    for (first, second, events) in [
        ("parts", "others", 2),
        ("low", "others", 3),
        ("parts", "other", 3),
        ("low", "other", 4),
    ] {
        world.run("truncate parts, others").await;
        assert_eq!(world.events().await.len(), 2);
        world
            .run(&format!(
                "with a as (insert into {first} (id) values (1), (2) returning id) insert into {second} select id from a"
            ))
            .await;
        let all = world.events().await;
        assert_eq!(
            keys(&all),
            ["other:1", "other:2", "part:1", "part:2"],
            "{first} {second}"
        );
        assert_eq!(all.len(), events, "{first} {second}");
    }
}

/// Whatever is done, through whatever table, at whatever depth: each row that is not as it was before a statement is
/// named by an event of that statement.
#[tokio::test]
async fn every_changed_row_is_named_whatever_the_statements() {
    let world = parts().await;
    world
        .run("create function poke(which text, n int) returns int language plpgsql as $$ begin \
                execute format('update %I set v = v + 1 where id % 7 = $1 % 7', which) using n; return n; end $$; \
              create function nest() returns trigger language plpgsql as $$ begin \
                if pg_trigger_depth() < 3 and new.v is not null and new.v % 5 = 0 then \
                  perform poke((array['parts', 'low', 'high', 'high_1', 'odd'])[1 + new.v / 5 % 5], new.id); end if; \
                return new; end $$; \
              create trigger zz_nest after insert or update on parts for each row execute function nest(); \
              create table ref (id int primary key); alter table parts add foreign key (grp) references ref on delete set null on update cascade; \
              insert into ref select generate_series(0, 20)")
        .await;
    let seed = std::env::var("PGEVICT_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("PGEVICT_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let tables = ["parts", "parts", "high", "low", "high_1", "high_2", "odd"];
    let rows = async || {
        let rows = world
            .admin
            .query("select id, grp, v from parts", &[])
            .await
            .unwrap();
        rows.iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect::<std::collections::BTreeMap<i32, (Option<i32>, Option<i32>)>>()
    };
    world.events().await;
    let mut changed = 0;
    for _ in 0..60 {
        world.run("begin").await;
        for _ in 0..4 {
            let sql = statement(&mut rng, &tables);
            let before = rows().await;
            let undone = rng.u8(0..4) == 0;
            world.run("savepoint s").await;
            if world.admin.batch_execute(&sql).await.is_err() || undone {
                world.run("rollback to s").await;
                continue;
            }
            let after = rows().await;
            let named = keys(&world.events().await);
            for id in before.keys().chain(after.keys()) {
                if before.get(id) != after.get(id) {
                    changed += 1;
                    assert!(
                        named.binary_search(&format!("part:{id}")).is_ok(),
                        "seed {seed}: {id} was changed by {sql}: {named:?}"
                    );
                }
            }
        }
        world.run("commit").await;
        world.events().await;
    }
    assert!(changed > 200, "{changed}");
}

fn statement(rng: &mut fastrand::Rng, tables: &[&str]) -> String {
    let one = |rng: &mut fastrand::Rng| tables[rng.usize(..tables.len())];
    let (a, b) = (one(rng), one(rng));
    let (low, high) = match a {
        "low" => (0, 100),
        "high" => (100, 300),
        "high_1" => (100, 200),
        "high_2" => (200, 300),
        "odd" => (300, 400),
        _ => (0, 400),
    };
    let n = rng.i32(low..high);
    let v = rng.i32(0..30);
    let insert = format!(
        "insert into {a} (id, grp, v) select n, n % 20, {v} from generate_series({n}, least({n} + 9, {high} - 1)) n \
         on conflict (id) do update set v = excluded.v + 1"
    );
    let update = format!(
        "update {a} set v = v + 1, grp = {} where id % 5 = {}",
        rng.i32(0..20),
        n % 5
    );
    match rng.u8(0..12) {
        0 | 1 => insert,
        2 => update,
        3 => format!(
            "update {a} set id = id + 100 where id % 10 = {} and id < 300",
            n % 10
        ),
        4 => format!("delete from {a} where id % 11 = {}", n % 11),
        5 => format!(
            "with x as ({insert} returning id) update {b} set v = v + 1 where id % 3 = {}",
            n % 3
        ),
        6 => format!(
            "with x as ({update} returning id), y as (delete from {b} where id % 13 = 1 returning id) \
                      select (select count(*) from y where x.id > 0) from x"
        ),
        7 => format!("update {a} set v = poke('{b}', id) where id % 17 = {}", n % 17),
        8 => format!(
            "merge into {a} t using generate_series({n}, least({n} + 5, {high} - 1)) s (id) on t.id = s.id \
                      when matched then update set v = t.v + 5 when not matched then insert (id, v) values (s.id, {v})"
        ),
        9 => format!(
            "delete from ref where id = {0}; insert into ref values ({0})",
            rng.i32(0..20)
        ),
        10 => format!(
            "do $$ begin {insert}; raise exception 'no'; exception when raise_exception then {update}; end $$"
        ),
        _ => format!(
            "do $$ declare r record; begin for r in {insert} returning id loop perform poke('{b}', r.id); end loop; end $$"
        ),
    }
}

/// A partition that was added since has no statement triggers of ours: the depth and the end of the statement through
/// the parent are all that tell its rows apart.
#[tokio::test]
async fn rows_of_a_partition_that_came_later_are_told() {
    let world = parts().await;
    world
        .run("create table later partition of parts for values from (400) to (500); \
              create table ref (id int primary key); insert into ref values (1), (2), (3), (4); \
              alter table parts add r int references ref on delete cascade; \
              create function poke() returns trigger language plpgsql as $$ begin \
                update later set v = coalesce(v, 0) + 1 where id = 400; return new; end $$; \
              create trigger a_poke before insert on parts for each row when (new.v = 13) execute function poke(); \
              create table other (id int); create trigger poke after insert on other for each row execute function poke(); \
              insert into parts (id, r) values (400, null), (1, 1), (101, 1), (401, 2), (2, 3)")
        .await;
    let both = "begin; insert into parts (id) values (402), (3); insert into later (id) values (403); commit";
    for (sql, wanted) in [
        (both, &["part:3", "part:402", "part:403"][..]),
        (
            "insert into parts (id, v) values (404, 13)",
            &["part:400", "part:404"],
        ),
        (
            "begin; delete from ref where id = 1; insert into other values (1); commit",
            &["part:1", "part:101", "part:400"],
        ),
        (
            "begin; delete from ref where id = 2; update later set v = 7 where id = 400; commit",
            &["part:400", "part:401"],
        ),
        (
            "begin; savepoint s; delete from ref where id = 3; rollback to s; insert into other values (1); \
             insert into later (id) values (405); commit",
            &["part:400", "part:405"],
        ),
        (
            "begin; do $$ begin insert into parts (id) values (406), (406); exception when others then null; end $$; \
             insert into later (id) values (407); commit",
            &["part:407"],
        ),
    ] {
        world.events().await;
        world.run(sql).await;
        let events = world.events().await;
        assert_eq!(keys(&events), wanted, "{sql}: {events:?}");
    }
}
