//! Row triggers do not fire on TRUNCATE, so consumers kept all rows of an emptied table (SkipLabs 784, amelie 30).

use crate::support::World;

#[tokio::test]
async fn c28_truncate_is_one_prefix_event_also_by_cascade() {
    let world = World::start().await;
    world
        .run("create table parent (id int primary key); create table child (id int primary key, p int references parent); \
            select pgevict.watch('parent', 'parent:{id}'); select pgevict.watch('child', 'child:{id}'); \
            insert into parent values (1), (2), (3); insert into child values (1, 1), (2, 1), (3, 1)")
        .await;
    world.events().await;
    world.run("truncate child").await;
    let events = world.events().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].prefixes, ["child:"]);
    assert_eq!(events[0].kind.as_deref(), Some("child.truncated"));
    assert!(events[0].keys.is_empty());

    world.run("insert into child values (1, 1)").await;
    world.events().await;
    world.run("truncate parent cascade").await;
    let mut prefixes: Vec<_> = world
        .events()
        .await
        .into_iter()
        .flat_map(|event| event.prefixes)
        .collect();
    prefixes.sort();
    assert_eq!(prefixes, ["child:", "parent:"]);
}

#[tokio::test]
async fn c28_cascaded_deletes_name_every_row() {
    let world = World::start().await;
    world
        .run("create table parent (id int primary key); create table child (id int primary key, p int references parent on delete cascade on update cascade); \
            select pgevict.watch('child', 'child:{id}', array['parent:{p}']); \
            insert into parent values (1), (2); insert into child values (1, 1), (2, 1), (3, 2)")
        .await;
    world.events().await;
    world.run("delete from parent where id = 1").await;
    let events = world.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].keys, ["child:1", "child:2"]);
    world.run("update parent set id = 9").await;
    assert_eq!(world.events().await[0].tags, ["parent:2", "parent:9"]);
}

#[tokio::test]
async fn c28_truncate_of_a_partition_and_of_its_parent_are_one_event_each() {
    let world = World::start().await;
    world
        .run(
            "create table parent (id int primary key) partition by range (id); \
              create table low partition of parent for values from (0) to (100); \
              create table high partition of parent for values from (100) to (200); \
              create table child (id int primary key references parent); \
              select pgevict.watch('parent', 'parent:{id}'); select pgevict.watch('child', 'child:{id}'); \
              insert into parent values (1), (2), (101); insert into child values (1)",
        )
        .await;
    for (sql, prefixes) in [
        ("truncate parent cascade", &["child:", "parent:"][..]),
        (
            "begin; truncate parent cascade; savepoint s; truncate low cascade; rollback to s; truncate high cascade; commit",
            &["child:", "child:", "parent:", "parent:"],
        ),
        (
            "alter table child drop constraint child_id_fkey; truncate high",
            &["parent:"],
        ),
        ("truncate parent", &["parent:"]),
        ("truncate low, parent", &["parent:"]),
    ] {
        world.events().await;
        world.run(sql).await;
        let events = world.events().await;
        assert!(
            events.iter().all(|event| event.keys.is_empty()),
            "{sql}: {events:?}"
        );
        let mut found: Vec<_> = events.into_iter().flat_map(|event| event.prefixes).collect();
        found.sort();
        assert_eq!(found, prefixes, "{sql}");
    }
}
