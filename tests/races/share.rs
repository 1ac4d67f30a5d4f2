//! Who may share a load: those who came before the event may, those who came after it may not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pgevict::cache::NearCache;
use pgevict::event::Event;
use pgevict::sink::{Origin, Reset};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::world::{Never, World, every_touch, key, tag};

/// A database with one row, whose readers wait for the test's leave between reading and answering.
#[derive(Clone)]
struct Row {
    value: Arc<AtomicU32>,
    leave: Arc<Semaphore>,
    reads: mpsc::UnboundedSender<u32>,
}

fn row() -> (Row, mpsc::UnboundedReceiver<u32>) {
    let (reads, seen) = mpsc::unbounded_channel();
    let row = Row {
        value: Arc::new(AtomicU32::new(1)),
        leave: Arc::new(Semaphore::new(0)),
        reads,
    };
    (row, seen)
}

fn ask(cache: &NearCache<u32>, row: &Row) -> JoinHandle<Option<u32>> {
    let (cache, row) = (cache.clone(), row.clone());
    tokio::spawn(async move {
        let of = key("product:1");
        let answer = cache.get_or_load(&of, |load| async move {
            let read = row.value.load(Ordering::SeqCst);
            row.reads.send(read).unwrap();
            row.leave.acquire().await.unwrap().forget();
            Ok::<_, Never>(load.found(read).tag(tag("category:7")))
        });
        answer.await.unwrap().into_value()
    })
}

/// Lets every task that can run do so.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_comes_after_the_event_does_not_get_the_value_from_before_it() {
    for (what, event) in every_touch() {
        let world = World::new();
        let cache = world.cache::<u32>();
        let (row, mut reads) = row();
        let first = [ask(&cache, &row), ask(&cache, &row)];
        assert_eq!(reads.recv().await, Some(1));
        settle().await;

        row.value.store(2, Ordering::SeqCst);
        world.change(event);
        let second = [ask(&cache, &row), ask(&cache, &row), ask(&cache, &row)];
        settle().await;
        row.leave.add_permits(10);
        for caller in first {
            assert_eq!(caller.await.unwrap(), Some(1), "{what}");
        }
        for caller in second {
            assert_eq!(caller.await.unwrap(), Some(2), "{what}");
        }
        assert_eq!(cache.stats().loads, 2, "{what}: the next load is shared");
        assert!(cache.get(&key("product:1")).is_hit(), "{what}");
    }
}

#[tokio::test]
async fn an_own_event_counts_before_the_feed_brings_it() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let (row, mut reads) = row();
    let before = ask(&cache, &row);
    assert_eq!(reads.recv().await, Some(1));
    row.value.store(2, Ordering::SeqCst);
    world.apply(100, Event::default().tag(tag("category:7")), Origin::Own);
    let after = ask(&cache, &row);
    settle().await;
    row.leave.add_permits(10);
    assert_eq!(before.await.unwrap(), Some(1));
    assert_eq!(after.await.unwrap(), Some(2));
}

#[tokio::test]
async fn who_comes_after_a_reset_does_not_share_a_load_from_before_it() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let (row, mut reads) = row();
    let before = ask(&cache, &row);
    assert_eq!(reads.recv().await, Some(1));
    row.value.store(2, Ordering::SeqCst);
    world.reset(Reset::Epoch);
    let after = ask(&cache, &row);
    settle().await;
    row.leave.add_permits(10);
    assert_eq!(before.await.unwrap(), Some(1));
    assert_eq!(after.await.unwrap(), Some(2));
    assert_eq!(cache.len(), 0);
}

#[tokio::test]
async fn an_event_that_touches_something_else_does_not_split_the_callers() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let (row, mut reads) = row();
    let before = ask(&cache, &row);
    assert_eq!(reads.recv().await, Some(1));
    world.change(Event::default().key(key("product:2")).tag(tag("category:8")));
    let after = ask(&cache, &row);
    settle().await;
    row.leave.add_permits(10);
    assert_eq!((before.await.unwrap(), after.await.unwrap()), (Some(1), Some(1)));
    assert_eq!(cache.stats().loads, 1);
}

#[tokio::test]
async fn at_most_two_loads_of_a_key_run_at_once() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let (row, mut reads) = row();
    let mut callers = Vec::new();
    for round in 1..=5 {
        row.value.store(round, Ordering::SeqCst);
        if round > 1 {
            world.change(Event::default().key(key("product:1")));
        }
        callers.push((round, ask(&cache, &row)));
        callers.push((round, ask(&cache, &row)));
        settle().await;
    }
    assert_eq!((reads.recv().await, reads.recv().await), (Some(1), Some(2)));
    assert!(reads.try_recv().is_err(), "a third load ran at once");
    row.leave.add_permits(20);
    for (round, caller) in callers {
        assert!(
            caller.await.unwrap().unwrap() >= round,
            "older than an event before the call"
        );
    }
    assert_eq!(cache.stats().loads, 3, "all who waited shared one");
}

#[tokio::test(start_paused = true)]
async fn while_cut_off_a_load_is_shared_for_max_staleness_only() {
    let world = World::new();
    let cache = world.cache::<u32>();
    let (row, mut reads) = row();
    world.hands.advance(Duration::from_secs(60));
    let first = ask(&cache, &row);
    assert_eq!(reads.recv().await, Some(1));
    world.hands.advance(Duration::from_secs(5));
    let second = ask(&cache, &row);
    settle().await;
    assert!(reads.try_recv().is_err(), "shared");
    row.value.store(2, Ordering::SeqCst);
    world.hands.advance(Duration::from_secs(1));
    let third = ask(&cache, &row);
    assert_eq!(reads.recv().await, Some(2), "a change of which no event came");
    world.hands.advance(Duration::from_secs(60));
    row.leave.add_permits(10);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(1), Some(1)));
    assert_eq!(third.await.unwrap(), Some(2));
}
