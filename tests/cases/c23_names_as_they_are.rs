//! LISTEN folded a name to lower case and NOTIFY did not; another library cleaned the name on one side only, so that
//! "cache:invalidate" got nothing and "cache_invalidate" got its messages (postgres.js 157, npgsql 6002, jac 8046).
//! Here the channel is constant, and names that people choose are compared byte by byte.

use std::process::Stdio;
use std::time::Duration;

use pgevict::{Event, Pgevict, Prefix, Tag};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use crate::support::World;
use crate::support::app::{App, PATIENCE, config, key, slow_poll};

const NAMES: [&str; 14] = [
    "cacheInvalidated",
    "cacheinvalidated",
    "CACHE",
    "cache",
    "cache:invalidate",
    "cache_invalidate",
    "cache-invalidate",
    "cache.invalidate",
    "cache%3Ainvalidate",
    "a\"b",
    " a b ",
    "1st",
    "caché",
    "cache\u{301}",
];

const SOON: Duration = Duration::from_secs(1);

#[tokio::test]
async fn c23_a_type_reaches_the_handler_of_that_very_name() {
    let world = World::start().await;
    let (sender, mut seen) = unbounded_channel();
    let mut settings = config(&world.cluster.url(), "a");
    slow_poll(&mut settings);
    let mut builder = Pgevict::builder(settings);
    for name in NAMES {
        let sender = sender.clone();
        builder = builder.on(name, move |event| {
            sender
                .send((name, event.kind().unwrap_or_default().to_owned()))
                .unwrap();
            async {}
        });
    }
    let app = App::start_with(&world, builder).await;
    app.until_proved(PATIENCE).await;
    for name in NAMES {
        let sql = "select pgevict.emit('{}', type => $1)";
        world.admin.execute(sql, &[&name]).await.unwrap();
        let got = timeout(SOON, seen.recv()).await.unwrap().unwrap();
        assert_eq!(got, (name, name.to_owned()));
        drop(app.pgevict.emit(&world.admin, Event::new(name)).await.unwrap());
        let got = timeout(SOON, seen.recv()).await.unwrap().unwrap();
        assert_eq!(got, (name, name.to_owned()));
    }
    app.pgevict.shutdown().await;
    assert!(
        seen.try_recv().is_err(),
        "no handler got the event of another name"
    );
}

#[tokio::test]
async fn c23_a_tag_or_prefix_drops_the_entries_of_that_very_name() {
    let world = World::start().await;
    let mut app = App::start(&world, "a", slow_poll).await;
    app.until_proved(PATIENCE).await;
    let fill = async |app: &App| {
        for name in NAMES {
            let tag = Tag::new(name).unwrap();
            let key = key(&format!("{name}/1"));
            let load = app.cache.get_or_load(&key, |load| async move {
                Ok::<_, tokio_postgres::Error>(load.found("v".to_owned()).tag(tag))
            });
            load.await.unwrap();
        }
        assert_eq!(app.cache.len(), NAMES.len());
    };
    let gone = |app: &App| -> Vec<&str> {
        NAMES
            .into_iter()
            .filter(|name| app.held(&format!("{name}/1")).is_none())
            .collect()
    };
    for name in NAMES {
        for sql in [
            "select pgevict.emit(array[$2], tags => array[$1])",
            "select pgevict.emit(array[$2], prefixes => array[$1 || '/'])",
        ] {
            fill(&app).await;
            let mark = "mark";
            world.admin.execute(sql, &[&name, &mark]).await.unwrap();
            app.event_for(mark, SOON).await;
            assert_eq!(gone(&app), [name], "{sql}");
        }
        for event in [
            Event::default().tag(Tag::new(name).unwrap()),
            Event::default().prefix(Prefix::new(format!("{name}/")).unwrap()),
        ] {
            fill(&app).await;
            drop(
                app.pgevict
                    .emit(&world.admin, event.key(key("mark")))
                    .await
                    .unwrap(),
            );
            app.event_for("mark", SOON).await;
            assert_eq!(gone(&app), [name]);
        }
    }
    app.pgevict.shutdown().await;
}

/// One command for each name, all at once: each prints the events of its own.
#[tokio::test]
async fn c23_whoever_follows_a_prefix_gets_that_very_name() {
    let world = World::start().await;
    let mut tails = Vec::new();
    for name in NAMES {
        let mut tail = tokio::process::Command::new(env!("CARGO_BIN_EXE_pgevict"))
            .args(["tail", "--json", "--count", "1", "--prefix", &format!("{name}/")])
            .env("PGEVICT_URL", world.cluster.url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(tail.stdout.take().unwrap()).lines();
        tails.push((name, tail, lines));
    }
    for (name, mut tail, mut lines) in tails {
        // It says nothing before the first event, so each is sent until one is followed.
        let followed = async {
            loop {
                let sql = "select pgevict.emit(tags => array[$1 || '/x'], keys => '{}')";
                world.admin.execute(sql, &[&name]).await.unwrap();
                if let Ok(line) = timeout(Duration::from_millis(200), lines.next_line()).await {
                    break line.unwrap().unwrap();
                }
            }
        };
        let line = timeout(PATIENCE, followed).await.unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["tags"], serde_json::json!([format!("{name}/x")]), "{name}");
        assert!(timeout(PATIENCE, tail.wait()).await.unwrap().unwrap().success());
    }
}
