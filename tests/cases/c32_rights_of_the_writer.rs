//! The trigger ran with the rights of whoever wrote to the table; ordinary roles got "permission denied" and their
//! writes failed (windmill 7826, pg-trickle 378).

use crate::support::{World, refusal};

#[tokio::test]
async fn c32_trigger_needs_no_rights_of_the_writer() {
    let world = World::start().await;
    world
        .run("create table t (id int primary key, x text); select pgevict.watch('t', 't:{id}'); create role app_rw; \
            grant select, insert, update, delete, truncate on t to app_rw; grant create on schema public to app_rw; \
            grant temporary on database postgres to app_rw; \
            alter table t enable row level security; alter table t force row level security; \
            create policy own on t to app_rw using (true) with check (true)")
        .await;
    world.events().await;
    let app = world.session_of("app_rw").await;
    let writes = "insert into t values (1, 'a'), (2, 'b'); update t set x = 'c' where id = 1; delete from t where id = 2; truncate t";
    let expected = ["t.created", "t.updated", "t.deleted", "t.truncated"];
    let kinds = async || -> Vec<String> {
        world
            .events()
            .await
            .into_iter()
            .filter_map(|event| event.kind)
            .collect()
    };
    app.batch_execute(writes).await.unwrap();
    assert_eq!(kinds().await, expected);

    // Objects named like ours, where an unqualified name would find them first.
    app.batch_execute(
        "create temp table event (keys text[]); create temp table meta (wake text); create temp table pgevict_new (id int); \
         create temp table pg_trigger (x int); create temp table pg_attribute (x int); create temp table pgevict_old (id int); \
         create type pg_temp.stale as (x int); \
         create function pg_temp.announce() returns \"char\" language sql as $$ select 'x'::\"char\" $$; \
         create function public.escape(text) returns text language sql as $$ select 'evil' $$; \
         create function public.pg_notify(text, text) returns void language plpgsql as $$ begin raise 'evil'; end $$; \
         create function public.octet_length(text) returns int language plpgsql as $$ begin raise 'evil'; end $$; \
         set search_path = pg_temp, public, pg_catalog",
    )
    .await
    .unwrap();
    app.batch_execute(
        &writes
            .replace(" t ", " public.t ")
            .replace("truncate t", "truncate public.t"),
    )
    .await
    .unwrap();
    assert_eq!(kinds().await, expected);
    app.batch_execute("reset search_path").await.unwrap();

    assert_eq!(
        refusal(&app, "insert into pgevict.event (keys) values ('{a}')")
            .await
            .0,
        "42501"
    );
    assert_eq!(refusal(&app, "delete from pgevict.event").await.0, "42501");
    assert_eq!(refusal(&app, "select pgevict.emit(array['a'])").await.0, "42501");
    assert_eq!(refusal(&app, "select setval('pgevict.beat', 1)").await.0, "42501");
    let function = world
        .text("select tgfoid::regproc from pg_trigger where tgrelid = 't'::regclass limit 1")
        .await;
    assert_eq!(
        refusal(
            &app,
            &format!(
                "create table own (id int); create trigger x after insert on own for each statement \
                 execute function {function}('{{}}')"
            )
        )
        .await
        .0,
        "42501"
    );
}

#[tokio::test]
async fn c32_an_owner_with_the_admin_role_watches_its_tables() {
    let world = World::start().await;
    world.run("create role team; grant pgevict_admin to team; create schema team authorization team; create table public.foreign_table (id int)").await;
    let team = world.session_of("team").await;
    team.batch_execute(
        "create type team.mood as enum ('so so'); create domain team.price as numeric; \
         create table team.t (id team.price primary key, m team.mood); \
         select pgevict.watch('team.t', 't:{id}', array['m:{m}']); insert into team.t values (1.50, 'so so'); \
         select * from pgevict.watch_status(); select pgevict.set_wake('commit')",
    )
    .await
    .unwrap();
    let events = world.events().await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].keys, ["t:1.5"]);
    assert_eq!(events[1].tags, ["m:so%20so"]);
    assert_eq!(
        refusal(&team, "select pgevict.watch('public.foreign_table', 't:{id}')")
            .await
            .0,
        "42501"
    );
    team.batch_execute("select pgevict.unwatch('team.t')")
        .await
        .unwrap();
}
