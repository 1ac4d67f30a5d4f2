//! `pgevict epoch`: what keeps the log over an upgrade, and what makes a copy's log a new one.

use pgevict::Config;
use pgevict::store::Admin;

use crate::support::World;
use crate::support::app::{App, PATIENCE};

/// Epoch and meta as pg_upgrade brings them: the counter of transactions went along, the server is another one.
const UPGRADED: &str =
    "update pgevict.epoch set system_identifier = 1; update pgevict.meta set system_identifier = 1";

async fn settled() -> World {
    let world = World::start().await;
    world
        .run(
            "select pgevict.establish(); select pgevict.emit(array['a']); \
             select pgevict.note_horizon('1 hour'); \
             select pgevict.beat_heart('i', gen_random_uuid(), 1, pg_current_snapshot())",
        )
        .await;
    world
}

async fn admin(world: &World) -> Admin {
    Admin::connect(&Config::from_url(world.cluster.url()).unwrap())
        .await
        .unwrap()
}

/// Events, horizons and heartbeats.
async fn counted(world: &World) -> String {
    world
        .text(
            "select (select count(*) from pgevict.event) || ' ' || (select count(*) from pgevict.horizon) || ' ' || \
                    (select count(*) from pgevict.heartbeat)",
        )
        .await
}

#[tokio::test]
async fn an_upgraded_log_is_adopted_with_its_rows() {
    let world = settled().await;
    let mut admin = admin(&world).await;
    assert!(!admin.adopt_epoch().await.unwrap(), "nothing to adopt");
    let before = admin.epoch().await.unwrap();
    assert_eq!(before.same_log, Some(true));

    world.run(UPGRADED).await;
    let found = admin.epoch().await.unwrap();
    assert_eq!((found.epoch, found.same_log), (None, Some(false)));
    assert!(admin.adopt_epoch().await.unwrap());
    let after = admin.epoch().await.unwrap();
    assert_eq!(after.same_log, Some(true));
    assert_ne!(after.epoch, before.epoch, "what lived in memory is gone");
    assert_eq!(world.text("select fresh from pgevict.establish()").await, "f");
    assert_eq!(counted(&world).await, "1 1 1");
}

#[tokio::test]
async fn a_restored_log_is_not_adopted() {
    let world = settled().await;
    let mut admin = admin(&world).await;
    world.run(UPGRADED).await;
    // The log of a server that was further than this one; a guard keeps foreign rows out, whoever inserts them.
    for ahead in [
        "update pgevict.meta set pruned = '900000:900000:'",
        "update pgevict.heartbeat set cursor = '900000:900000:'",
        "update pgevict.horizon set snapshot = '900000:900000:'",
        "update pgevict.event set xid = '899999'",
    ] {
        world.run(&format!("begin; {ahead}")).await;
        let refused = world
            .admin
            .batch_execute("select pgevict.epoch_adopt()")
            .await
            .unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code().code(), "55000", "{ahead}");
        assert!(refused.message().contains("900000"), "{}", refused.message());
        world.run("rollback").await;
    }
    world.run("update pgevict.event set xid = '899999'").await;
    let error = admin.adopt_epoch().await.unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("restored rather than upgraded"),
        "{error}"
    );
    assert_eq!(counted(&world).await, "1 1 1");
    // As said, the first instance to connect empties it.
    assert_eq!(world.text("select fresh from pgevict.establish()").await, "t");
    assert_eq!(counted(&world).await, "0 0 0");
}

#[tokio::test]
async fn a_new_epoch_empties_the_log_and_every_cache() {
    let world = World::with_kv().await;
    let mut app = App::start(&world, "a", |_| {}).await;
    app.get("k").await;
    world.run("select pgevict.emit(array['other'])").await;
    app.event_for("other", PATIENCE).await;

    let mut admin = admin(&world).await;
    let founded = admin.new_epoch().await.unwrap();
    app.until(|status| status.resets.get("epoch") == Some(&1), PATIENCE)
        .await;
    assert_eq!(app.held("k"), None);
    assert_eq!(admin.epoch().await.unwrap().epoch, Some(founded));
    assert_eq!(world.text("select count(*) from pgevict.event").await, "0");
    world.set("k", "v2").await;
    app.event_for("k", PATIENCE).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    app.pgevict.shutdown().await;
}
