//! The trigger function that is made for each watch: it follows schema changes, stays within its rights, and goes when the
//! watch goes.

use std::time::{Duration, Instant};

use pgevict::store::migrate::uninstall;
use pgevict::store::watch::{LOCK_LIMIT, WatchDefinition, WatchState, unwatch, watch, watches};

use crate::support::{World, refusal};
use crate::watch::products;

const FUNCTIONS: &str = "select count(*) from pg_proc where pronamespace = to_regnamespace('pgevict') \
     and proname like 'fired%'";

#[tokio::test]
async fn a_column_that_takes_the_name_of_another_is_not_taken_for_it() {
    let world = products().await;
    let wide = ["category:", "product:"];
    // A session with plans, one with an old snapshot and plans, one with an old snapshot and none.
    let warm = world.cluster.connect().await.unwrap();
    let old = world.cluster.connect().await.unwrap();
    let cold = world.cluster.connect().await.unwrap();
    for client in [&warm, &old] {
        client
            .batch_execute(
                "insert into products values (1, 7); update products set price = 1; delete from products",
            )
            .await
            .unwrap();
    }
    world.events().await;
    for client in [&old, &cold] {
        client
            .batch_execute("begin isolation level repeatable read; select 1 from pg_class limit 1")
            .await
            .unwrap();
    }
    world
        .run(
            "alter table products add new_id bigint; alter table products drop constraint products_pkey; \
             alter table products rename id to old_id; alter table products rename new_id to id",
        )
        .await;
    for client in [&old, &cold] {
        client
            .batch_execute("insert into products (old_id, id, category_id) values (1, 100, 7); commit")
            .await
            .unwrap();
        assert_eq!(world.event().await.prefixes, wide);
    }
    for client in [&warm, &old, &cold, &world.admin] {
        for sql in [
            "insert into products (old_id, id, category_id) values (2, 200, 7)",
            "insert into products (old_id, id, category_id) values (3, 300, 7), (4, 400, 7)",
            "update products set price = coalesce(price, 0) + 1 where old_id = 3",
            "update products set price = coalesce(price, 0) + 1",
            "delete from products where old_id = 2",
            "delete from products",
        ] {
            client.batch_execute(sql).await.unwrap();
            let event = world.event().await;
            assert_eq!(event.prefixes, wide, "{sql}");
            assert!(event.keys.is_empty(), "{sql}");
        }
        client
            .batch_execute("update products set price = 1")
            .await
            .unwrap();
        assert!(world.events().await.is_empty());
    }
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Drifted);
}

#[tokio::test]
async fn later_columns_count_and_a_lost_primary_key_hides_no_change() {
    let world = products().await;
    world
        .run("insert into products values (1, 7), (2, 7); update products set price = 1 where id = 1")
        .await;
    world.run("alter table products add extra real default 1").await;
    world.events().await;
    world
        .run("set extra_float_digits = -15; update products set extra = 1.0000001 where id = 1")
        .await;
    assert_eq!(world.event().await.keys, ["product:1"]);
    world.run("update products set extra = 1.0000001").await;
    assert_eq!(world.event().await.keys, ["product:2"]);

    world
        .run("alter table products drop constraint products_pkey; insert into products (id, category_id, name) \
              values (5, 1, 'a'), (5, 1, 'b')")
        .await;
    world.events().await;
    world
        .run("update products set name = case name when 'b' then 'c' else name end where id = 5")
        .await;
    assert_eq!(world.event().await.keys, ["product:5"]);
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
}

#[tokio::test]
async fn one_row_and_many_rows_are_written_alike() {
    let world = World::start().await;
    world
        .run("create type pair as (a int, b text); create type mood as enum ('so so', 'good'); create domain price as numeric; \
            create table t (n int primary key, i2 int2, i8 int8, u uuid, b bool, nu numeric, p price, t text, c char(4), \
              by bytea, tz timestamptz, ts timestamp, d date, iv interval, f float8, ip inet, cd cidr, j json, jb jsonb, m mood, \
              ms mood[], co pair, ar int[], mo money); \
            create table shape (like t including all); \
            insert into shape values \
            (1, 1, 2, '00000000-0000-0000-0000-000000000001', true, 1.50, 100.00, 'a:b', 'x', '\\x00ff', '2026-11-30 10:00+05', \
              '2026-11-30 10:00', '2026-11-30', '26:00', 0.1, '10.0.0.1', '10.0.0.0/8', '{\"a\":1}', '{\"a\": 1}', 'so so', \
              '{good}', '(1,\"x y\")', '{1,null}', 12.5), \
            (2, null, null, null, false, 100, null, '', '', '', null, null, null, null, null, '::1', null, null, null, null, \
              null, null, null, null), \
            (3, -1, -2, null, null, 0, 0.10, null, null, null, 'infinity', '-infinity', null, '1 day', 'NaN', '1.2.3.0/24', \
              null, null, null, 'good', '{}', '(,)', '{}', null); \
            select pgevict.watch('t', 't:{n}', array['i:{i2}:{i8}:{n}', 'u:{u}', 'b:{b}', 'nu:{nu}:{p}', 't:{t}:{c}', 'by:{by}', \
              'ts:{tz}:{ts}', 'd:{d}:{iv}', 'f:{f}', 'ip:{ip}', 'cd:{cd}', 'j:{j}:{jb}', 'm:{m}:{ms}', 'co:{co}:{ar}', 'mo:{mo}', \
              'all', 'x{n}y'], array['p:{u}:'])")
        .await;
    world.events().await;
    let texts = async || {
        let mut all = Vec::new();
        for event in world.events().await {
            all.extend(event.keys);
            all.extend(event.tags);
            all.extend(event.prefixes);
        }
        all.sort();
        all.dedup();
        all
    };
    world
        .run("set timezone = 'Asia/Kolkata'; set datestyle = 'German'; set bytea_output = 'escape'")
        .await;
    let single = |sql: &str| {
        (1..=3)
            .map(|n| sql.replace('?', &format!("n = {n}")))
            .collect::<Vec<_>>()
            .join(";")
    };
    for sql in [
        "insert into t select * from shape where ?",
        "update t set t = t || '!', i8 = i8 + 1 where ?",
        "update t set nu = coalesce(nu, 1) + 1, p = p + 1 where ?",
        "delete from t where ?",
    ] {
        world.run("begin").await;
        world.run(&single(sql)).await;
        let by_row = texts().await;
        world.run("rollback; begin").await;
        world.run(&sql.replace('?', "true")).await;
        let at_once = texts().await;
        world.run("rollback").await;
        assert_eq!(by_row, at_once, "{sql}");
        world.run(&sql.replace('?', "true")).await;
        let keys = texts().await;
        assert!(keys.len() > 20, "{sql}: {keys:?}");
        for text in &keys {
            for part in text.split(':').skip(1) {
                let bytes = part.as_bytes();
                assert!(
                    bytes
                        .iter()
                        .all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(b)),
                    "{text}"
                );
            }
        }
    }
}

#[tokio::test]
async fn tables_of_one_name_are_told_apart() {
    let world = World::start().await;
    world
        .run("create schema a; create schema b; create table a.t (id int primary key); create table b.t (x int, id int primary key); \
              select pgevict.watch('a.t', 'a:{id}'); select pgevict.watch('b.t', 'b:{id}', array['{schema}.{table}:{x}'], flush_ok => true)")
        .await;
    world.events().await;
    world
        .run("insert into a.t values (1); insert into b.t values (2, 3)")
        .await;
    let events = world.events().await;
    assert_eq!(events[0].keys, ["a:1"]);
    assert_eq!(events[1].keys, ["b:3"]);
    assert_eq!(events[1].tags, ["b.t:2"]);
    assert_eq!(world.text(FUNCTIONS).await, "2");
    world.run("select pgevict.unwatch('a.t')").await;
    assert_eq!(world.text(FUNCTIONS).await, "1");
    world.events().await;
    world
        .run("insert into a.t values (5); insert into b.t values (6, 7)")
        .await;
    assert_eq!(world.event().await.keys, ["b:7"]);
}

#[tokio::test]
async fn names_do_not_break_out_of_the_function() {
    let mut world = World::start().await;
    world.run("create table canary (id int)").await;
    let names = [
        "x\"; DROP TABLE canary; --",
        "x'; DROP TABLE canary; --",
        "$1",
        "%s",
        "%1$s%I%L%%",
        "a\\",
        "\\'; DROP TABLE canary; --",
        "a$pgevict$b",
        "$$; DROP TABLE canary; --",
        "$source$",
        "v_act",
        "o",
        "n",
        "*/ x /*",
        "tg_op",
        "tg_relid",
        "new",
        "a\nb",
    ];
    for name in names {
        let quoted = name.replace('"', "\"\"");
        for setting in ["on", "off"] {
            world
                .run(&format!(
                    "set standard_conforming_strings = {setting}; set escape_string_warning = off"
                ))
                .await;
            world
                .run(&format!(
                    "create schema \"{quoted}\"; create table \"{quoted}\".\"{quoted}\" (\"{quoted}\" text primary key, other int)"
                ))
                .await;
            let table = format!("\"{quoted}\".\"{quoted}\"");
            let mut definition = WatchDefinition::new(&table)
                .key(format!("{name}:{{{name}}}"))
                .tag(format!("{{schema}}.{{table}}.{{{name}}}.{name}"))
                .prefix(format!("{name}|{{{name}}}"));
            definition.headless = pgevict::store::watch::Headless::Flush;
            definition.columns = Some(vec![name.to_owned(), "other".to_owned()]);
            watch(&mut world.admin, &definition, LOCK_LIMIT).await.unwrap();
            world.events().await;
            for sql in [
                format!("insert into {table} values ('1', 1)"),
                format!("update {table} set other = 2"),
                format!("update {table} set \"{quoted}\" = '0'"),
                format!("insert into {table} values ('2', 1), ('3', 1)"),
                format!("update {table} set other = other + 1"),
                format!("delete from {table} where \"{quoted}\" = '0'"),
                format!("delete from {table}"),
            ] {
                world.run(&sql).await;
                let event = world.event().await;
                assert!(
                    event.keys.iter().all(|key| key.starts_with(&format!("{name}:"))),
                    "{sql}: {event:?}"
                );
                assert!(!event.keys.is_empty(), "{sql}: {event:?}");
                assert!(
                    event.tags.iter().all(|tag| tag.ends_with(&format!(".{name}"))),
                    "{sql}: {event:?}"
                );
                assert_eq!(event.entity_type.as_deref(), Some(name));
            }
            world.run(&format!("truncate {table}")).await;
            assert_eq!(world.events().await.len(), 1);
            assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
            assert!(unwatch(&mut world.admin, &table, LOCK_LIMIT).await.unwrap());
            assert_eq!(world.text(FUNCTIONS).await, "0");
            world.run(&format!("drop schema \"{quoted}\" cascade")).await;
            world.events().await;
        }
    }
    world.run("select * from canary").await;
}

#[tokio::test]
async fn the_function_goes_with_its_watch() {
    let mut world = products().await;
    assert_eq!(world.text(FUNCTIONS).await, "1");
    world.run("select pgevict.watch('products', 'p:{id}')").await;
    assert_eq!(world.text(FUNCTIONS).await, "1");
    // Rolled back, nothing is left.
    world
        .run("begin; select pgevict.watch('products', 'q:{id}'); rollback")
        .await;
    assert_eq!(world.text(FUNCTIONS).await, "1");
    // PostgreSQL leaves the function of a dropped table behind; forgetting the watch takes it, and so does any other change.
    world
        .run("drop table products; create table products (id int primary key)")
        .await;
    world.run("select pgevict.watch('products', 'p:{id}')").await;
    assert_eq!(world.text(FUNCTIONS).await, "1");
    world.run("drop table products").await;
    assert!(unwatch(&mut world.admin, "products", LOCK_LIMIT).await.unwrap());
    assert_eq!(world.text(FUNCTIONS).await, "0");
    world
        .run("create table products (id int); select pgevict.watch('products', 'p:{id}')")
        .await;
    uninstall(&mut world.admin, LOCK_LIMIT).await.unwrap();
    assert_eq!(world.text(FUNCTIONS).await, "0");
    world.run("insert into products values (1)").await;
}

#[tokio::test]
async fn nobody_but_the_owner_changes_or_runs_the_function() {
    let world = products().await;
    world
        .run("create role app; create role team; grant pgevict_admin to team; grant create on schema public to app, team; \
              grant temporary on database postgres to team")
        .await;
    let name = world
        .text("select oid::regproc from pg_proc where proname like 'fired%'")
        .await;
    assert_eq!(
        world
            .text(&format!(
                "select rolname || has_function_privilege('app', p.oid, 'execute') || \
                 has_function_privilege('public', p.oid, 'execute') || (proconfig is not null) || prosecdef \
                 from pg_proc p join pg_roles r on r.oid = p.proowner where p.oid = '{name}'::regproc"
            ))
            .await,
        "pgevict_ownerfalsefalsetruetrue"
    );
    let app = world.session_of("app").await;
    let team = world.session_of("team").await;
    app.batch_execute("create table own (id int)").await.unwrap();
    team.batch_execute("create table theirs (id int, category_id int)")
        .await
        .unwrap();
    for (who, sql) in [
        (
            &app,
            format!("create trigger x after insert on own execute function {name}()"),
        ),
        (&app, "select pgevict.watch_build('{}', 1)".to_owned()),
        (&app, "select pgevict.watch_sweep()".to_owned()),
        (
            &team,
            format!("create or replace function {name}() returns trigger language plpgsql as 'begin end'"),
        ),
        (&team, format!("drop function {name}()")),
        (&team, format!("alter function {name}() reset all")),
        (&team, format!("comment on function {name}() is '{{}}'")),
        (
            &team,
            format!(
                "select pgevict.watch_make('{}', '{{}}', 1)",
                &name["pgevict.".len()..]
            ),
        ),
    ] {
        let (code, message) = refusal(who, &sql).await;
        assert_eq!(code, "42501", "{sql}: {message}");
    }

    // Who may watch may put the function on a table of his own. Relations that stand for the transition tables, whose
    // reading would run his functions with the owner's rights, are not read.
    team.batch_execute(&format!(
        "create function evil() returns int language plpgsql as $$ begin raise exception 'ran as %', current_user; end $$; \
         create temp view pgevict_new as select evil() as id, evil() as category_id; \
         create temp view pgevict_old as select evil() as id, evil() as category_id; \
         create trigger x after insert or update or delete on theirs for each statement execute function {name}('{{}}'); \
         insert into theirs values (1, 2); update theirs set id = 3; delete from theirs"
    ))
    .await
    .unwrap();
    for event in world.events().await {
        assert_eq!(event.prefixes, ["category:", "product:"]);
    }
}

#[tokio::test]
async fn a_retyped_column_never_runs_a_cast_with_our_rights() {
    let world = World::start().await;
    world
        .run(
            "create role team; grant pgevict_admin to team; create schema team authorization team; \
              create table public.proof (who text); grant insert on public.proof to public",
        )
        .await;
    let team = world.session_of("team").await;
    // Casts that run where they are written out, and parts of them already where they are planned.
    team.batch_execute(
        "create type team.evil as (a int); \
         create function team.log(int) returns text immutable language plpgsql as \
           $$ begin raise exception 'ran as %', current_user; end $$; \
         create function team.to_text(team.evil) returns text immutable language sql as 'select team.log(1)'; \
         create function team.to_int(team.evil) returns int immutable language sql as 'select length(team.log(1))'; \
         create function team.to_numeric(team.evil) returns numeric immutable language sql as 'select length(team.log(1))'; \
         create cast (team.evil as text) with function team.to_text(team.evil) as implicit; \
         create cast (team.evil as int) with function team.to_int(team.evil) as implicit; \
         create cast (team.evil as numeric) with function team.to_numeric(team.evil) as implicit; \
         create table team.t (id int, x numeric); select pgevict.watch('team.t', 't:{id}', array['x:{x}']); \
         insert into team.t values (1, 2); update team.t set x = 3; delete from team.t",
    )
    .await
    .unwrap();
    let old = world.session_of("team").await;
    old.batch_execute("begin isolation level repeatable read; select 1 from pg_class limit 1")
        .await
        .unwrap();
    team.batch_execute(
        "alter table team.t alter id type team.evil using null, alter x type team.evil using null",
    )
    .await
    .unwrap();
    world.events().await;
    for client in [&old, &team] {
        client
            .batch_execute(
                "insert into team.t values (row(1), row(2)); insert into team.t values (row(3), row(4)), (row(5), row(6)); \
                 update team.t set x = row(7) where (id).a = 1; update team.t set x = row(8); delete from team.t; \
                 rollback",
            )
            .await
            .unwrap();
        client
            .batch_execute("insert into team.t values (row(1), row(2)), (row(1), row(2)); delete from team.t")
            .await
            .unwrap();
        for event in world.events().await {
            assert_eq!(event.prefixes, ["t:", "x:"]);
        }
    }
}

#[tokio::test]
async fn renaming_a_column_again_and_again_breaks_no_write() {
    let world = products().await;
    let mut writers = Vec::new();
    let until = Instant::now() + Duration::from_secs(3);
    for n in 0..3 {
        let client = world.cluster.connect().await.unwrap();
        writers.push(tokio::spawn(async move {
            let mut writes = 0;
            while Instant::now() < until {
                client
                    .batch_execute(&format!(
                        "insert into products (price, name) select {n}, 'x' where false; \
                         insert into products values ({n}{writes}, 1); delete from products where price is null"
                    ))
                    .await
                    .ok();
                client
                    .batch_execute(&format!(
                        "insert into products values ({n}1{writes:06}, 1), ({n}2{writes:06}, 2); \
                         update products set price = 1 where name is null and price is null"
                    ))
                    .await
                    .unwrap();
                writes += 1;
            }
            writes
        }));
    }
    let mut renamed = 0;
    while Instant::now() < until {
        world
            .run("alter table products rename category_id to other; alter table products rename note to category_id")
            .await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        world
            .run("alter table products rename category_id to note; alter table products rename other to category_id")
            .await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        renamed += 1;
    }
    let mut writes = 0;
    for writer in writers {
        writes += writer.await.unwrap();
    }
    assert!(writes > 20 && renamed > 5, "{writes} {renamed}");
    for event in world.events().await {
        let by_heads = event.prefixes == ["category:", "product:"] && event.keys.is_empty();
        let by_keys = event.prefixes.is_empty() && !event.keys.is_empty();
        assert!(by_heads || by_keys, "{event:?}");
        assert!(
            event
                .tags
                .iter()
                .all(|tag| ["category:1", "category:2"].contains(&tag.as_str())),
            "{event:?}"
        );
    }
}

#[tokio::test]
async fn a_migration_makes_the_functions_anew_without_touching_tables() {
    let world = products().await;
    let name = world
        .text("select oid::regproc from pg_proc where proname like 'fired%'")
        .await;
    world
        .run(&format!(
            "do $do$ begin execute (select replace(pg_get_functiondef('{name}'::regproc), '''heads''', '''heads'' /* older */')); end $do$"
        ))
        .await;
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Drifted);
    let reader = world.cluster.connect().await.unwrap();
    reader
        .batch_execute("begin; lock table products in access share mode; insert into products values (1)")
        .await
        .unwrap();
    world
        .run("set role pgevict_owner; set lock_timeout = '1s'; select pgevict.watch_rebuild(); reset role")
        .await;
    assert_eq!(watches(&world.admin).await.unwrap()[0].state, WatchState::Ok);
    reader
        .batch_execute("insert into products values (2); rollback")
        .await
        .unwrap();
    world.events().await;
    world.run("insert into products values (3)").await;
    assert_eq!(world.event().await.keys, ["product:3"]);
}
