//! An event carried in its notification failed above 8,000 bytes and took the user's write along (NeoHaskell 417,
//! oban 791). Here the notification is constant and empty.

use crate::support::World;

#[tokio::test]
async fn c20_large_keys_and_many_tags_commit() {
    let world = World::start().await;
    world
        .run("create table t (id text primary key); select pgevict.watch('t', 't:{id}')")
        .await;
    world.events().await;
    world
        .run("begin; insert into t values (repeat('x', 2000)); \
            select pgevict.emit(array[repeat('k', 20480)], (select array_agg('tag:' || n) from generate_series(1, 500) n)); commit")
        .await;
    let events = world.events().await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].keys[0].len(), 20_480);
    assert_eq!(events[1].tags.len(), 500);
    // No primary key: an index entry could not hold this one.
    world
        .run("create table big (id text); select pgevict.watch('big', 'big:{id}')")
        .await;
    world.events().await;
    world.run("insert into big values (repeat('x', 20480))").await;
    assert_eq!(world.events().await[0].keys[0].len(), 4 + 20_480);

    // What a listener sees: one empty notification for each transaction, whatever its size.
    let seen = world
        .cluster
        .psql([
            "-c",
            "listen pgevict",
            "-c",
            "begin; select pgevict.emit(array[repeat('k', 20480)]); select pgevict.emit(array['b']); commit",
            "-c",
            "select 1",
        ])
        .await
        .unwrap();
    assert_eq!(
        seen.matches("Asynchronous notification \"pgevict\" received")
            .count(),
        1,
        "{seen}"
    );
    assert!(!seen.contains("with payload"), "{seen}");
}
