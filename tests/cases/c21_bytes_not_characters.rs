//! A limit counted in characters where the server counts bytes: rows with emoji or control characters in their keys
//! went over it and were lost (appstrate 1340). Here no key travels in a notification, and every limit counts bytes.

use std::future::poll_fn;
use std::time::Duration;

use pgevict::event::MAX_TEXT_BYTES;
use pgevict::{Event, key};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::app::{App, PATIENCE, slow_poll};
use crate::support::{World, refusal};

fn texts() -> Vec<String> {
    vec![
        "😀".repeat(2000),
        "😀".repeat(1999),
        "é".repeat(4000),
        "\u{1}".repeat(1400),
        "日本語の鍵。".repeat(700),
        "\u{7f}\u{2028}\"\\\u{feff}".repeat(900),
        "caf\u{e9}".to_owned(),
        "cafe\u{301}".to_owned(),
    ]
}

#[tokio::test]
async fn c21_every_text_is_an_exact_key_and_no_notification_grows() {
    let world = World::start().await;
    world
        .run("create table t (id text); select pgevict.watch('t', 't:{id}', array['tag:{id}'])")
        .await;
    let (_listener, mut notifications) = listen(&world).await;
    let mut app = App::start(&world, "a", slow_poll).await;
    app.until_proved(PATIENCE).await;
    for text in texts() {
        for key in [key!("t:{}", text), pgevict::Key::new(text.as_str()).unwrap()] {
            let load = app.cache.get_or_load(&key, |load| async move {
                Ok::<_, tokio_postgres::Error>(load.found("v".to_owned()))
            });
            load.await.unwrap();
        }
    }
    app.deliveries().await;
    let mut left = app.cache.len();
    assert_eq!(left, 2 * texts().len(), "each text is a key of its own");

    for text in texts() {
        let watched = key!("t:{}", text);
        world
            .admin
            .execute("insert into t values ($1)", &[&text])
            .await
            .unwrap();
        let keys = within_a_second(&mut app, watched.as_str()).await;
        assert_eq!(keys, [watched.as_str()]);
        left -= 1;
        assert_eq!(app.cache.len(), left, "{:.20}: one entry and no other", text);

        // The same through the function and through the library, as it is.
        let emit = "select pgevict.emit(array[$1])";
        world.admin.execute(emit, &[&text]).await.unwrap();
        assert_eq!(within_a_second(&mut app, &text).await, [text.as_str()]);
        let event = Event::new("t.touched").key(pgevict::Key::new(text.as_str()).unwrap());
        drop(app.pgevict.emit(&world.admin, event).await.unwrap());
        assert_eq!(within_a_second(&mut app, &text).await, [text.as_str()]);
        left -= 1;
        assert_eq!(app.cache.len(), left, "{:.20}: one entry and no other", text);
    }
    assert_eq!(left, 0);

    // One for each transaction, and nothing in it.
    for _ in 0..3 * texts().len() {
        let payload = timeout(PATIENCE, notifications.recv()).await.unwrap().unwrap();
        assert_eq!(payload, "");
    }
    app.pgevict.shutdown().await;
}

#[tokio::test]
async fn c21_the_limit_of_a_text_is_one_of_bytes() {
    let world = World::start().await;
    world
        .run("create table t (id text); select pgevict.watch('t', 't:{id}')")
        .await;
    world.events().await;
    for character in ["a", "é", "語", "😀"] {
        let most = MAX_TEXT_BYTES / character.len();
        let fits = character.repeat(most);
        assert!(pgevict::Key::new(fits.as_str()).is_ok(), "{character}");
        world
            .run(&format!(
                "select pgevict.emit(array[repeat('{character}', {most})])"
            ))
            .await;
        assert_eq!(world.event().await.keys, [fits.as_str()], "{character}");

        let over = character.repeat(most + 1);
        let error = pgevict::Key::new(over).unwrap_err().to_string();
        assert!(error.contains("1 MiB") && error.contains("key"), "{error}");
        let (code, message) = refusal(
            &world.admin,
            &format!("select pgevict.emit(array[repeat('{character}', {})])", most + 1),
        )
        .await;
        assert_eq!(code, "22023");
        assert!(message.contains("1 MiB") && message.contains("keys"), "{message}");

        // A watched row is written whatever its key: the head stands for one that is too long.
        world
            .run(&format!(
                "insert into t values (repeat('{character}', {}))",
                most + 1
            ))
            .await;
        let event = world.event().await;
        assert_eq!((event.keys, event.prefixes), (vec![], vec!["t:".to_owned()]));
    }
}

/// Keys of the event that names this key.
async fn within_a_second(app: &mut App, key: &str) -> Vec<String> {
    let found = timeout(Duration::from_secs(1), async {
        loop {
            let delivery = app.events.next().await.unwrap();
            let keys = crate::support::app::keys_of(&delivery);
            if keys.iter().any(|one| one == key) {
                return keys;
            }
        }
    });
    found.await.expect("an event by the wake, long before the poll")
}

/// A listener that is none of ours, for as long as its client lives; the payloads it hears.
#[expect(
    clippy::disallowed_methods,
    reason = "the listener has to be none of ours, and its messages are read here"
)]
async fn listen(world: &World) -> (Client, UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(&world.cluster.url(), NoTls)
        .await
        .unwrap();
    let (sender, heard) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message
                && sender.send(notification.payload().to_owned()).is_err()
            {
                break;
            }
        }
    });
    client.batch_execute("listen pgevict").await.unwrap();
    (client, heard)
}
