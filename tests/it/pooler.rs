//! PgBouncer between an instance and its server.

use std::time::Duration;

use pgevict::lab::{Bouncer, PoolMode};
use pgevict::{Cause, Listening};
use tokio_postgres::{Client, NoTls};

use crate::support::app::{App, PATIENCE};
use crate::support::{World, text};

/// Sessions of instances that take a pooler to stand before them: each statement has a transaction around it.
pub(crate) const LENT: &str = "select count(*) from pg_stat_activity where application_name like 'pgevict/%' and query in ('commit', 'COMMIT')";

async fn client_of(world: &World, bouncer: &Bouncer) -> Client {
    let config: tokio_postgres::Config = bouncer.url(&world.cluster).parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Every setting of the server's sessions that another client of the pooler finds changed, and every channel.
async fn left_behind(world: &World, bouncer: &Bouncer) -> Vec<String> {
    let mut found = Vec::new();
    let mut clients = Vec::new();
    // As many transactions at once as the pooler has sessions: each looks into another one.
    for _ in 0..3 {
        let client = client_of(world, bouncer).await;
        client.batch_execute("begin").await.unwrap();
        found.push(
            text(
                &client,
                "select pg_backend_pid() || coalesce((select string_agg(name || '=' || setting, ',' order by name) \
                   from pg_settings where source = 'session' \
                   and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', \
                     'standard_conforming_strings', 'IntervalStyle')), '') \
                 || coalesce(current_setting('pgevict.system_identifier', true), '') \
                 || coalesce((select string_agg('listens to ' || channel, ',') from pg_listening_channels() channel), '')",
            )
            .await,
        );
        clients.push(client);
    }
    found
}

fn is_number(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

#[tokio::test]
async fn behind_a_transaction_pooler_an_instance_polls_says_why_and_leaves_nothing_behind() {
    let world = World::with_kv().await;
    let bouncer = Bouncer::before(&world.cluster, PoolMode::Transaction)
        .await
        .unwrap();
    for listens in [true, false] {
        let mut app = App::start_at(&world, &bouncer.url(&world.cluster), "a", |config| {
            config.wake.listen = listens;
            config.feed.heartbeat = Duration::from_millis(200);
        })
        .await;
        app.get("k").await;
        if listens {
            app.until(
                |status| status.listening == Listening::Lost(Cause::Pooler),
                Duration::from_secs(5),
            )
            .await;
            assert_eq!(app.pgevict.status().degraded, Some(Cause::Pooler));
        } else {
            assert_eq!(app.pgevict.status().degraded, None);
        }
        assert_ne!(world.text(LENT).await, "0");
        for n in 0..3 {
            world.set("k", &format!("{listens}{n}")).await;
            app.event_for("k", Duration::from_secs(2)).await;
            assert_eq!(app.get("k").await, Some(format!("{listens}{n}")));
        }
        app.pgevict.sync(PATIENCE).await.unwrap();
        let left = left_behind(&world, &bouncer).await;
        assert!(left.iter().all(|left| is_number(left)), "{left:?}");
        assert!(!app.pgevict.status().warden, "its LISTEN session is not proved");
        app.pgevict.shutdown().await;
        world.until_heartbeats(0).await;
    }
    let left = left_behind(&world, &bouncer).await;
    assert!(left.iter().all(|left| is_number(left)), "{left:?}");
}

/// Other clients keep the pooler's sessions in motion, so that the same one seldom answers twice.
#[tokio::test]
async fn a_busy_transaction_pooler_is_found_too() {
    let world = World::with_kv().await;
    let bouncer = Bouncer::before(&world.cluster, PoolMode::Transaction)
        .await
        .unwrap();
    let mut busy = Vec::new();
    for _ in 0..4 {
        let client = client_of(&world, &bouncer).await;
        busy.push(tokio::spawn(async move {
            loop {
                client.batch_execute("select pg_sleep(0.002)").await.unwrap();
            }
        }));
    }
    let app = App::start_at(&world, &bouncer.url(&world.cluster), "a", |_| {}).await;
    app.until(
        |status| status.listening == Listening::Lost(Cause::Pooler),
        Duration::from_secs(5),
    )
    .await;
    app.pgevict.shutdown().await;
    for task in busy {
        task.abort();
    }
}

#[tokio::test]
async fn a_session_pooler_carries_the_wakes() {
    let world = World::with_kv().await;
    let bouncer = Bouncer::before(&world.cluster, PoolMode::Session).await.unwrap();
    let mut app = App::start_at(&world, &bouncer.url(&world.cluster), "a", |config| {
        crate::support::app::slow_poll(config);
        // Three sessions are what the pooler has: listening, fetching, and now and then a probe.
        config.warden.enabled = false;
    })
    .await;
    app.until_proved(PATIENCE).await;
    app.get("k").await;
    world.set("k", "v2").await;
    app.event_for("k", Duration::from_secs(2)).await;
    assert_eq!(app.get("k").await.as_deref(), Some("v2"));
    app.pgevict.shutdown().await;
    drop(app);
    let left = left_behind(&world, &bouncer).await;
    assert!(left.iter().all(|left| is_number(left)), "{left:?}");
}
