//! A json column may hold \u0000, which jsonb and text cannot; turning the row into an event failed and the user's
//! UPDATE with it (hasura graphql-engine 6782).

use crate::support::World;

#[tokio::test]
async fn c24_json_with_u0000_commits_and_has_its_event() {
    let world = World::start().await;
    world
        .run("create table t (id int primary key, doc json); select pgevict.watch('t', 't:{id}', array['doc:{doc}'])")
        .await;
    world.events().await;
    world.run("insert into t values (1, '{\"a\": 1}')").await;
    world.run("update t set doc = '{\"a\": \"\\u0000\"}'").await;
    world.run("update t set doc = '{\"a\": \"\\u0000\"}'").await;
    world
        .run("update t set doc = '{\"a\": \"\\u0000\\ud800\"}'")
        .await;
    let events = world.events().await;
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events.iter().all(|event| event.keys == ["t:1"]));
    assert_eq!(
        events[1].tags,
        [
            "doc:%7B%22a%22%3A%20%22%5Cu0000%22%7D",
            "doc:%7B%22a%22%3A%201%7D"
        ]
    );
}
