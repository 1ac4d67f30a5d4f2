//! The lab does what the other tests take for granted.

use std::time::{Duration, Instant};

use pgevict::lab::{Cluster, ClusterOptions, Relay, StopMode};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

/// Longer than anything here takes, shorter than a test run's patience.
const SOON: Duration = Duration::from_secs(10);

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let config: tokio_postgres::Config = url.parse()?;
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn number(client: &Client, sql: &str) -> i32 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// A cluster behind a relay, and a session through it.
async fn relayed() -> (Cluster, Relay, Client) {
    let cluster = Cluster::start().await.unwrap();
    let relay = Relay::before(&cluster).await.unwrap();
    let client = connect(&relay.url(&cluster)).await.unwrap();
    (cluster, relay, client)
}

#[tokio::test]
async fn a_cluster_answers_on_every_address_it_names() {
    let cluster = Cluster::start().await.unwrap();
    let other = cluster.create_database("other db").await.unwrap();
    for url in [
        cluster.url(),
        cluster.socket_url(),
        other,
        cluster.url_for("other db"),
    ] {
        let client = connect(&url).await.unwrap();
        let version = number(
            &client,
            "SELECT current_setting('server_version_num')::int / 10000",
        )
        .await;
        assert_eq!(version, cluster.major_version() as i32, "{url}");
    }
    assert_eq!(cluster.psql(["-Atc", "SELECT 6 * 7"]).await.unwrap().trim(), "42");
    let error = cluster.psql(["-c", "SELECT nothing"]).await.unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("nothing"),
        "{error}"
    );
}

#[tokio::test]
async fn a_restart_keeps_port_and_data() {
    let cluster = Cluster::start().await.unwrap();
    let url = cluster.url();
    let client = connect(&url).await.unwrap();
    client
        .batch_execute("CREATE TABLE kept AS SELECT 7 AS n")
        .await
        .unwrap();
    for mode in [StopMode::Fast, StopMode::Immediate] {
        cluster.restart(mode).await.unwrap();
        assert!(
            client.batch_execute("SELECT").await.is_err(),
            "the old session survived {mode:?}"
        );
        assert_eq!(
            number(&connect(&url).await.unwrap(), "SELECT n FROM kept").await,
            7
        );
    }
    cluster.stop(StopMode::Fast).await.unwrap();
    cluster.stop(StopMode::Fast).await.unwrap();
    assert!(connect(&url).await.is_err());
    cluster.start_again().await.unwrap();
    cluster.start_again().await.unwrap();
    assert_eq!(
        number(&connect(&url).await.unwrap(), "SELECT n FROM kept").await,
        7
    );
}

#[tokio::test]
async fn a_killed_cluster_recovers_what_was_committed() {
    let cluster = ClusterOptions::new().durable().start().await.unwrap();
    let client = cluster.connect().await.unwrap();
    assert_eq!(
        number(&client, "SELECT (current_setting('fsync') = 'on')::int").await,
        1
    );
    client
        .batch_execute("CREATE TABLE kept AS SELECT 7 AS n")
        .await
        .unwrap();
    cluster.kill().await.unwrap();
    assert!(cluster.connect().await.unwrap_err().is_unreachable());
    cluster.start_again().await.unwrap();
    assert_eq!(
        number(&cluster.connect().await.unwrap(), "SELECT n FROM kept").await,
        7
    );
    assert!(
        cluster.log().contains("automatic recovery in progress"),
        "{}",
        cluster.log()
    );
}

#[tokio::test]
async fn a_password_is_asked_for_over_tcp_only() {
    let password = "p@ss 'wörd/";
    let cluster = ClusterOptions::new().password(password).start().await.unwrap();
    connect(&cluster.url()).await.unwrap();
    connect(&cluster.socket_url()).await.unwrap();
    let without = format!("postgresql://postgres@{}/postgres", cluster.address());
    assert!(connect(&without).await.is_err());
}

#[tokio::test]
async fn a_setting_the_server_rejects_is_shown_with_the_log() {
    let options = ClusterOptions::new().setting("wal_level", "nonsense");
    let error = options.start().await.unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("nonsense"),
        "{error}"
    );
}

#[tokio::test]
async fn a_dropped_cluster_leaves_nothing() {
    let cluster = Cluster::start().await.unwrap();
    let (url, data) = (cluster.url(), cluster.data_dir());
    assert!(data.join("postmaster.pid").exists());
    drop(cluster);
    assert!(connect(&url).await.is_err());
    assert!(!data.parent().unwrap().exists());
}

#[tokio::test]
async fn the_server_outlives_the_thread_that_asked_for_it() {
    let cluster = std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(Cluster::start()).unwrap()
    })
    .join()
    .unwrap();
    // A server interrupted by the thread's end would answer the next question but one with a shutdown.
    let client = cluster.connect().await.unwrap();
    client.batch_execute("SELECT pg_sleep(0.2)").await.unwrap();
    assert!(!cluster.log().contains("shutdown request"), "{}", cluster.log());
}

#[tokio::test]
async fn a_frozen_relay_keeps_sockets_open_and_loses_nothing() {
    let (cluster, relay, client) = relayed().await;
    assert_eq!(number(&client, "SELECT 1").await, 1);
    relay.freeze();
    let mut asked = Box::pin(number(&client, "SELECT 2"));
    assert!(timeout(Duration::from_millis(100), &mut asked).await.is_err());
    let url = relay.url(&cluster);
    let mut connecting = Box::pin(connect(&url));
    assert!(
        timeout(Duration::from_millis(100), &mut connecting)
            .await
            .is_err()
    );
    assert_eq!((relay.attempts(), relay.open_connections()), (2, 2));
    relay.pass();
    assert_eq!(timeout(SOON, asked).await.unwrap(), 2);
    let second = timeout(SOON, connecting).await.unwrap().unwrap();
    assert_eq!(number(&second, "SELECT 3").await, 3);
}

#[tokio::test]
async fn a_cut_closes_and_refuses_until_passed() {
    let (cluster, relay, client) = relayed().await;
    relay.cut();
    timeout(SOON, relay.until_open(0)).await.unwrap();
    assert!(client.batch_execute("SELECT").await.is_err());
    for _ in 0..3 {
        assert!(connect(&relay.url(&cluster)).await.is_err());
    }
    assert_eq!(relay.attempts(), 4);
    assert!(relay.attempt_times().is_sorted());
    relay.pass();
    assert_eq!(
        number(&connect(&relay.url(&cluster)).await.unwrap(), "SELECT 1").await,
        1
    );
}

#[tokio::test]
async fn refusing_spares_what_is_open_and_closing_spares_what_comes() {
    let (cluster, relay, client) = relayed().await;
    relay.refuse();
    assert!(connect(&relay.url(&cluster)).await.is_err());
    assert_eq!(number(&client, "SELECT 1").await, 1);
    relay.pass();
    relay.close_existing();
    timeout(SOON, relay.until_open(0)).await.unwrap();
    assert!(client.batch_execute("SELECT").await.is_err());
    assert_eq!(
        number(&connect(&relay.url(&cluster)).await.unwrap(), "SELECT 1").await,
        1
    );
}

#[tokio::test]
async fn a_matching_chunk_is_held_and_others_go_on() {
    let (cluster, relay, client) = relayed().await;
    let other = connect(&relay.url(&cluster)).await.unwrap();
    relay.hold_matching("LISTEN", SOON * 6);
    assert_eq!(number(&client, "SELECT 1").await, 1);
    let listening = tokio::spawn(async move { client.batch_execute("LISTEN bell").await });
    timeout(SOON, relay.until_held(1)).await.unwrap();
    assert_eq!(number(&other, "SELECT 2").await, 2);
    // Asked past the relay: the question holds the word itself.
    let reached = "SELECT count(*)::int FROM pg_stat_activity WHERE query = 'LISTEN bell'";
    assert_eq!(number(&cluster.connect().await.unwrap(), reached).await, 0);
    relay.pass();
    timeout(SOON, listening).await.unwrap().unwrap().unwrap();
    assert_eq!(relay.held(), 0);
}

#[tokio::test]
async fn a_held_chunk_goes_on_when_its_time_is_over() {
    let (_cluster, relay, client) = relayed().await;
    relay.hold_matching("LISTEN", Duration::from_millis(50));
    let start = Instant::now();
    timeout(SOON, client.batch_execute("LISTEN bell"))
        .await
        .unwrap()
        .unwrap();
    assert!(start.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn a_delay_is_paid_in_both_directions() {
    let (_cluster, relay, client) = relayed().await;
    relay.delay(Duration::from_millis(30));
    let start = Instant::now();
    client.batch_execute("SELECT").await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[tokio::test]
async fn the_last_handle_ends_the_relay() {
    let (cluster, relay, client) = relayed().await;
    let (handle, url) = (relay.clone(), relay.url(&cluster));
    drop(relay);
    assert_eq!(number(&client, "SELECT 1").await, 1);
    drop(handle);
    assert!(client.batch_execute("SELECT").await.is_err());
    assert!(connect(&url).await.is_err());
}
