//! What is written between the warm-up's read and the readiness is not missed.

use std::time::Duration;

use pgevict::Pgevict;
use tokio::sync::oneshot;

use crate::support::World;
use crate::support::app::{App, config, key, slow_poll};

#[tokio::test]
async fn c05_a_write_during_the_warm_up_is_not_missed() {
    let world = World::with_kv().await;
    let mut settings = config(&world.cluster.url(), "a");
    slow_poll(&mut settings);
    let db = world.cluster.connect().await.unwrap();
    let (read_here, read) = oneshot::channel();
    let (cache_here, cache) = oneshot::channel();
    let starting = tokio::spawn(
        Pgevict::builder(settings)
            .warm_up(|pgevict| async move {
                let cache = pgevict.cache::<String>().build();
                let token = cache
                    .token()
                    .expect("the start position is taken before the load");
                let row = db.query_one("select v from kv where k = 'k'", &[]).await.unwrap();
                read_here.send(()).unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
                let stored = cache.store(&key("k"), Some(row.get(0)), &[], &token);
                assert_eq!(stored, pgevict::cache::Stored::Refused);
                assert!(cache_here.send(cache).is_ok());
                Ok(())
            })
            .start(),
    );
    read.await.unwrap();
    world.set("k", "v2").await;
    assert!(!starting.is_finished(), "not ready before the warm-up has ended");
    let pgevict = starting.await.unwrap().unwrap();
    let app = App {
        cache: cache.await.unwrap(),
        events: pgevict.subscribe(),
        db: world.cluster.connect().await.unwrap(),
        pgevict,
    };
    assert_eq!(app.held("k"), None, "the overtaken load was not kept");
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    app.pgevict.shutdown().await;
}
