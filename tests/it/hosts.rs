//! Several hosts: the primary is found, wherever it stands in the list.

use std::time::{Duration, Instant};

use pgevict::lab::{Cluster, ClusterOptions, StopMode};
use pgevict::store::Admin;
use pgevict::{Config, Error, Pgevict};

use crate::support::World;
use crate::support::app::{App, PATIENCE, config, slow_poll};

fn list(ports: &[u16]) -> String {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgresql://postgres@{}/postgres", hosts.join(","))
}

async fn reach(url: &str) -> Result<(), Error> {
    Admin::connect(&Config::from_url(url)?).await.map(drop)
}

#[tokio::test]
async fn the_primary_is_found_behind_its_standby() {
    let world = World::with_kv().await;
    let standby = world.cluster.standby().await.unwrap();
    let (first, second) = (standby.port(), world.cluster.port());
    let mut app = App::start_at(&world, &list(&[first, second]), "a", slow_poll).await;
    app.until_proved(PATIENCE).await;
    world.set("k", "v2").await;
    app.applied("k").await;
    let sessions = "select count(*) from pg_stat_activity where application_name like 'pgevict/%/a'";
    assert_eq!(world.text(sessions).await, "2");
    app.pgevict.shutdown().await;

    let target = format!("{}?target_session_attrs=primary", list(&[first, second]));
    reach(&target).await.unwrap();
    let same_host = format!("host=127.0.0.1,127.0.0.1 port={first},{second} user=postgres sslmode=disable");
    reach(&same_host).await.unwrap();
}

#[tokio::test]
async fn standbys_alone_are_refused_by_name() {
    let world = World::start().await;
    let standby = world.cluster.standby().await.unwrap();
    let port = standby.port();
    for url in [list(&[port]), list(&[port, port])] {
        let error = reach(&url).await.unwrap_err();
        assert!(error.is_standby() && error.is_refused(), "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains("is a standby") && said.contains(&port.to_string()),
            "{said}"
        );
    }
    let mut patient = config(&list(&[port]), "a");
    patient.feed.sync_timeout = Duration::from_millis(600);
    let error = Pgevict::builder(patient).start().await.err().unwrap();
    assert!(error.to_string().contains("is a standby"), "{error}");
    // With the primary down the list may still heal.
    world.cluster.stop(StopMode::Fast).await.unwrap();
    let error = reach(&list(&[port, world.cluster.port()])).await.unwrap_err();
    assert!(
        error.is_unreachable() && error.to_string().contains("is a standby"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_silent_host_takes_its_share_of_the_time_only() {
    let cluster = Cluster::start().await.unwrap();
    // It accepts, by its backlog, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent
        .local_addr()
        .map(|address| (silent, address.port()))
        .unwrap();
    let mut config = Config::from_url(list(&[silent.1, 1, cluster.port()])).unwrap();
    config.session.connect_timeout = Duration::from_millis(1500);
    let start = Instant::now();
    Admin::connect(&config).await.unwrap();
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(400) && took < Duration::from_millis(1000),
        "{took:?}"
    );

    let limit = format!("{}?connect_timeout=1", list(&[silent.1, cluster.port()]));
    let start = Instant::now();
    reach(&limit).await.unwrap();
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(900) && took < Duration::from_millis(1900),
        "{took:?}"
    );

    let mut config = Config::from_url(list(&[silent.1])).unwrap();
    config.session.connect_timeout = Duration::from_millis(300);
    let error = Admin::connect(&config).await.unwrap_err();
    assert!(
        error.is_unreachable() && error.to_string().contains("no answer within"),
        "{error}"
    );
}

#[tokio::test]
async fn who_is_turned_away_does_not_ask_the_next_host() {
    let guarded = ClusterOptions::new().password("right").start().await.unwrap();
    let open = Cluster::start().await.unwrap();
    let ports = [guarded.port(), open.port()];
    let url = list(&ports).replace("postgres@", "postgres:hunter2@");
    let error = reach(&url).await.unwrap_err();
    assert!(
        error.is_refused() && !format!("{error:?}").contains("hunter2"),
        "{error:?}"
    );
    reach(&list(&[open.port(), guarded.port()])).await.unwrap();
}
