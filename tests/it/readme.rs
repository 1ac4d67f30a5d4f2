//! The SQL that the README shows does what the README says.

use crate::support::World;
use crate::support::app::{App, PATIENCE};

fn sql() -> Vec<&'static str> {
    let blocks = include_str!("../../README.md").split("```sql\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

#[tokio::test]
async fn the_readme_watches_and_emits_what_arrives() {
    let [using] = sql()[..] else {
        panic!("one block of SQL")
    };
    let world = World::start().await;
    let app = App::start(&world, "a", |_| ()).await;
    world.run(using).await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    let status = app.pgevict.status();
    assert_eq!((status.events, status.resets.len()), (3, 0), "{status:?}");
    app.pgevict.shutdown().await;
}
