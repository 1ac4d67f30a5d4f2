//! On every (re)connect LISTEN is committed before the fetch that catches up; an event of that second is not lost.

use std::time::Duration;

use pgevict::lab::{ClusterOptions, Relay};
use pgevict::{Event, Key};

use crate::support::World;
use crate::support::app::{App, PATIENCE, slow_poll};

/// Reconnects of the test: few in CI, 50 when asked.
fn rounds() -> u32 {
    std::env::var("PGEVICT_C02_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(10)
}

#[tokio::test]
async fn c02_listen_comes_before_the_catch_up() {
    let options = ClusterOptions::new()
        .setting("log_statement", "all")
        .setting("log_line_prefix", "%m <%a> ");
    let world = World::with(options).await;
    world.make_kv().await;
    let relay = Relay::before(&world.cluster).await.unwrap();
    let mut app = App::start_behind(&world, &relay, "a", slow_poll).await;
    let rounds = rounds();
    for round in 0..rounds {
        app.until_proved(PATIENCE).await;
        let hold = Duration::from_millis(u64::from(round) * 1_000 / u64::from(rounds.max(2) - 1));
        relay.hold_matching(b"listen pgevict\0", hold);
        world.kill_listener("a").await;
        app.until_lost(PATIENCE).await;
        let k = format!("k{round}");
        let event = Event::new("test").key(Key::new(k.as_str()).unwrap());
        drop(app.pgevict.emit(&world.admin, event).await.unwrap());
        // The LISTEN is held, then answered; the wake of the emit was sent while nobody listened.
        app.event_for(&k, hold + Duration::from_secs(1)).await;
    }
    let log = world.cluster.log();
    let listens = positions(&log, "<pgevict/listen/a>", "listen pgevict");
    assert!(listens.len() as u32 > rounds, "{} LISTENs", listens.len());
    let fetches = positions(&log, "<pgevict/fetch/a>", "select null::xid8 as xid");
    for listen in listens {
        assert!(
            fetches.iter().any(|fetch| *fetch > listen),
            "no fetch after the LISTEN at byte {listen} of the log"
        );
    }
    app.pgevict.shutdown().await;
}

/// Where lines of this session hold the text.
fn positions(log: &str, session: &str, text: &str) -> Vec<usize> {
    let mut of_session = false;
    let mut found = Vec::new();
    let mut at = 0;
    for line in log.split_inclusive('\n') {
        // A statement of several lines goes on in lines that begin with a tab.
        if !line.starts_with('\t') {
            of_session = line.contains(session);
        }
        if of_session && line.trim_end().ends_with(text) | line.contains(&format!("{text},")) {
            found.push(at);
        }
        at += line.len();
    }
    found
}
