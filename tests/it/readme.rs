//! The SQL that the README shows does what the README says.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::support::World;
use crate::support::app::{App, PATIENCE};

fn sql() -> Vec<&'static str> {
    let blocks = include_str!("../../README.md").split("```sql\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

#[tokio::test]
async fn the_readme_prunes_what_everybody_has_read_and_resets_nobody() {
    let [using, pruning] = sql()[..] else {
        panic!("two blocks of SQL")
    };
    let world = World::start().await;
    let app = App::start(&world, "a", |config| {
        config.feed.heartbeat = Duration::from_millis(100)
    })
    .await;
    world.run(using).await;
    let read = "select count(*) from pgevict.event e where not exists (select from pgevict.heartbeat h \
                where e.xid >= pg_snapshot_xmin(h.cursor))";
    let deadline = Instant::now() + PATIENCE;
    while world.text(read).await != "3" {
        assert!(Instant::now() < deadline, "the heartbeat follows the cursor");
        sleep(Duration::from_millis(20)).await;
    }

    // What is not read yet stays.
    let open = world.cluster.connect().await.unwrap();
    open.batch_execute("begin; select pgevict.emit(array['late'])")
        .await
        .unwrap();
    world.run(pruning).await;
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");
    open.batch_execute("commit").await.unwrap();
    app.pgevict.sync(PATIENCE).await.unwrap();
    world.run(pruning).await;
    app.pgevict.sync(PATIENCE).await.unwrap();
    let status = app.pgevict.status();
    assert_eq!((status.events, status.resets.len()), (4, 0), "{status:?}");
    app.pgevict.shutdown().await;
}
