//! How a shared load can end: error, panic, deadline, a leader that is dropped or never polled again; and that
//! loads within loads do not wait for each other.

use std::error::Error as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use pgevict::cache::NearCache;
use pgevict::config::Config;
use pgevict::{Error, Result};
use tokio::sync::Notify;

use crate::world::{Never, World, key};

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Asks with a loader that never answers.
async fn ask_for_ever(cache: NearCache<u32>) -> Result<Option<u32>> {
    let of = key("k");
    let answer = cache.get_or_load(&of, |_| std::future::pending::<std::result::Result<_, Never>>());
    answer.await.map(|answer| answer.into_value())
}

/// Asks with a loader that answers `value` at once.
async fn ask(cache: NearCache<u32>, value: u32) -> Result<Option<u32>> {
    let of = key("k");
    let answer = cache.get_or_load(&of, |load| async move { Ok::<_, Never>(load.found(value)) });
    answer.await.map(|answer| answer.into_value())
}

/// Four callers on one load that `end` ends; their errors.
async fn shared_failure<E>(end: impl FnOnce() -> E + Send + 'static) -> Vec<Error>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    let world = World::new();
    let cache = world.cache::<u32>();
    let go = Arc::new(Notify::new());
    let (first, leave) = (cache.clone(), go.clone());
    let mut callers = vec![tokio::spawn(async move {
        let of = key("k");
        let answer = first.get_or_load(&of, |_| async move {
            leave.notified().await;
            Err(end())
        });
        answer.await.map(|answer| answer.into_value())
    })];
    settle().await;
    callers.extend((0..3).map(|_| tokio::spawn(ask(cache.clone(), 1))));
    settle().await;
    go.notify_one();
    let mut errors = Vec::new();
    for caller in callers {
        errors.push(caller.await.unwrap().unwrap_err());
    }
    assert_eq!((cache.stats().loads, cache.stats().load_errors), (1, 1));
    assert_eq!(ask(cache, 7).await.unwrap(), Some(7), "an error is not kept");
    errors
}

#[tokio::test]
async fn the_loaders_error_reaches_all_who_wait() {
    for error in shared_failure(|| std::io::Error::other("disk on fire")).await {
        assert!(error.is_loader());
        let cause = error.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(cause.to_string(), "disk on fire");
    }
}

#[tokio::test]
async fn a_panic_reaches_all_who_wait() {
    let errors = shared_failure(|| -> std::io::Error { panic!("boom {}", 1) }).await;
    assert!(
        errors
            .iter()
            .all(|error| error.is_loader() && error.to_string().ends_with("panicked: boom 1"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_load_for_all_who_wait() {
    let world = World::new();
    let cache = world
        .builder::<u32>()
        .load_timeout(Duration::from_secs(3))
        .build();
    let leader = tokio::spawn(ask_for_ever(cache.clone()));
    settle().await;
    let started = tokio::time::Instant::now();
    let waiter = tokio::spawn(ask(cache.clone(), 1));
    assert!(leader.await.unwrap().unwrap_err().is_timeout());
    assert!(waiter.await.unwrap().unwrap_err().is_timeout());
    assert_eq!(started.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn a_dropped_caller_hands_over() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let leader = tokio::spawn(ask_for_ever(cache.clone()));
    settle().await;
    let waiters = [1, 2, 3].map(|value| tokio::spawn(ask(cache.clone(), value)));
    settle().await;
    leader.abort();
    let mut answers = Vec::new();
    for waiter in waiters {
        answers.push(waiter.await.unwrap().unwrap().unwrap());
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "one of them led: {answers:?}"
    );
    assert_eq!((cache.stats().loads, cache.stats().loading), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_never_polled_again_does_not_hold_up_the_others() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let mut forgotten = pin!(ask_for_ever(cache.clone()));
    assert!(forgotten.as_mut().now_or_never().is_none());
    assert_eq!(ask(cache.clone(), 5).await.unwrap(), Some(5));
}

#[tokio::test]
async fn loads_at_once_are_capped_for_the_whole_instance() {
    let mut config = Config::default();
    config.cache.max_loads = 3;
    // No cursor: nothing can be stored, and still no stampede.
    let world = World::unstarted(config);
    let caches = [world.cache::<u32>(), world.cache::<u32>()];
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..40)
        .map(|n| {
            let (cache, running, most) = (caches[n % 2].clone(), running.clone(), most.clone());
            tokio::spawn(async move {
                let key = key(&format!("k{n}"));
                let answer = cache.get_or_load(&key, |load| async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    settle().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, Never>(load.found(1))
                });
                answer.await.unwrap();
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

fn one_load_at_once() -> World {
    let mut config = Config::default();
    config.cache.max_loads = 1;
    World::with(config)
}

#[tokio::test]
async fn a_load_within_a_load_needs_no_second_turn() {
    let world = one_load_at_once();
    let cache = world.cache::<u32>();
    let inner = cache.clone();
    let answer = cache
        .get_or_load(&key("sum"), |load| async move {
            let part = inner
                .get_or_load(&key("part"), |load| async move { Ok::<_, Never>(load.found(20)) })
                .await?;
            Ok::<_, Error>(load.found(part.unwrap() + 1))
        })
        .await
        .unwrap();
    assert_eq!(*answer, Some(21));
}

/// `sum` holds the only turn and joins the load of `part`, whose leader waits for a turn.
#[tokio::test(start_paused = true)]
async fn a_load_within_a_load_lends_its_turn() {
    let world = one_load_at_once();
    let cache = world.cache::<u32>();
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let outer = {
        let (cache, inner, started, go) = (cache.clone(), cache.clone(), started.clone(), go.clone());
        tokio::spawn(async move {
            let of = key("sum");
            let answer = cache.get_or_load(&of, |load| async move {
                started.notify_one();
                go.notified().await;
                let part = inner
                    .get_or_load(&key("part"), |load| async move { Ok::<_, Never>(load.found(99)) })
                    .await?;
                Ok::<_, Error>(load.found(part.unwrap() + 1))
            });
            answer.await.unwrap().into_value()
        })
    };
    started.notified().await;
    let part = {
        let cache = cache.clone();
        tokio::spawn(async move {
            let of = key("part");
            let answer = cache.get_or_load(&of, |load| async move { Ok::<_, Never>(load.found(20)) });
            answer.await.unwrap().into_value()
        })
    };
    settle().await;
    go.notify_one();
    assert_eq!((part.await.unwrap(), outer.await.unwrap()), (Some(20), Some(21)));
}

#[tokio::test]
async fn a_loader_that_asks_for_its_own_key_is_refused() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let inner = cache.clone();
    let error = cache
        .get_or_load(&key("k"), |load| async move {
            let again = inner
                .get_or_load(&key("k"), |load| async move { Ok::<_, Never>(load.found(1)) })
                .await?;
            Ok::<_, Error>(load.found(again.unwrap()))
        })
        .await
        .unwrap_err();
    let cause = error.source().unwrap().downcast_ref::<Error>().unwrap();
    assert!(cause.is_refused(), "{cause}");
}
