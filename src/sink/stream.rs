//! Following the events of an instance as they are applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::event::LoggedEvent;
use crate::sink::{Origin, Reset, Sink};

/// Events that wait for one follower; beyond it they are dropped and the follower gets one reset.
const QUEUE: usize = 10_000;

/// What a follower gets.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// An event, in the order of its fetch.
    Event(Arc<LoggedEvent>),
    /// Events may be missing from here on, or earlier ones are void: drop what was derived from them.
    Reset(Reset),
}

/// Follows the events of an instance. Dropping it ends it.
#[derive(Debug)]
pub struct Subscription {
    queue: mpsc::Receiver<Delivery>,
    gap: Arc<Gap>,
    stop: CancellationToken,
}

/// What did not fit into the queue: 0 nothing, else a reset is owed.
///
/// While it is owed no event is queued, so an empty queue means that the follower stands at the gap.
#[derive(Debug, Default)]
struct Gap {
    owed: AtomicU8,
    /// Wakes a follower that emptied the queue before it could learn of the gap.
    opened: Notify,
}

impl Gap {
    const RESETS: [Reset; 5] = [
        Reset::Overflow,
        Reset::Epoch,
        Reset::Identity,
        Reset::Pruned,
        Reset::Heartbeat,
    ];

    fn owe(&self, cause: Reset) {
        let code = Self::RESETS.iter().position(|known| *known == cause).unwrap_or(0) as u8 + 1;
        self.owed.store(code, Ordering::Release);
        self.opened.notify_one();
    }

    fn is_open(&self) -> bool {
        self.owed.load(Ordering::Acquire) != 0
    }

    fn settle(&self) -> Option<Reset> {
        match self.owed.swap(0, Ordering::AcqRel) {
            0 => None,
            code => Some(Self::RESETS[usize::from(code) - 1]),
        }
    }
}

impl Subscription {
    /// The next delivery; `None` once the instance has stopped.
    pub async fn next(&mut self) -> Option<Delivery> {
        loop {
            // What is queued came before the gap. The order of the two looks matters: see `Gap`.
            if self.gap.is_open()
                && self.queue.is_empty()
                && let Some(cause) = self.gap.settle()
            {
                return Some(Delivery::Reset(cause));
            }
            tokio::select! {
                biased;
                delivery = self.queue.recv() => return delivery,
                () = self.gap.opened.notified() => {}
                // Caches hold the feed's end of the queue as well, so the queue does not close by itself.
                () = self.stop.cancelled() => return None,
            }
        }
    }
}

/// The feed's end of a subscription.
pub(crate) struct Stream {
    queue: mpsc::Sender<Delivery>,
    gap: Arc<Gap>,
}

/// Both ends; the follower's ends at `stop`, after what is queued by then.
pub(crate) fn stream(stop: CancellationToken) -> (Stream, Subscription) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let gap = Arc::new(Gap::default());
    let stream = Stream {
        queue: sender,
        gap: gap.clone(),
    };
    let subscription = Subscription {
        queue: receiver,
        gap,
        stop,
    };
    (stream, subscription)
}

impl Sink for Stream {
    fn apply(&self, events: &[Arc<LoggedEvent>], origin: Origin) {
        if origin == Origin::Own {
            return;
        }
        for event in events {
            // After a gap nothing is queued before the follower has heard of it.
            if self.gap.is_open() {
                return;
            }
            if let Err(mpsc::error::TrySendError::Full(_)) =
                self.queue.try_send(Delivery::Event(event.clone()))
            {
                self.gap.owe(Reset::Overflow);
            }
        }
    }

    fn reset(&self, cause: Reset) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(Delivery::Reset(cause)) {
            self.gap.owe(cause);
        }
    }

    fn is_live(&self) -> bool {
        !self.queue.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::event::{Announced, Event};
    use crate::snapshot::Xid;

    fn event(id: i64) -> Arc<LoggedEvent> {
        Arc::new(LoggedEvent {
            xid: Xid(1),
            id,
            uuid: uuid::Uuid::nil(),
            version: 1,
            announced: Announced::Silent,
            created_at: SystemTime::UNIX_EPOCH,
            event: Event::default(),
        })
    }

    #[tokio::test]
    async fn a_slow_follower_gets_one_reset_after_what_was_queued_and_then_goes_on() {
        let stop = CancellationToken::new();
        let (stream, mut subscription) = stream(stop.clone());
        let events: Vec<_> = (0..QUEUE as i64 + 50).map(event).collect();
        stream.apply(&events, Origin::Feed);
        for expected in 0..QUEUE as i64 {
            match subscription.next().await {
                Some(Delivery::Event(event)) => assert_eq!(event.id, expected),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            subscription.next().await,
            Some(Delivery::Reset(Reset::Overflow))
        ));
        stream.apply(&[event(-1)], Origin::Feed);
        assert!(matches!(subscription.next().await, Some(Delivery::Event(event)) if event.id == -1));
        stop.cancel();
        assert!(subscription.next().await.is_none());
        drop(subscription);
        assert!(!stream.is_live());
    }

    /// The follower empties the queue between the feed's finding it full and its saying so.
    #[tokio::test]
    async fn a_follower_that_waits_already_is_told_of_the_gap() {
        let (stream, mut subscription) = stream(CancellationToken::new());
        let waiting = tokio::spawn(async move { subscription.next().await });
        tokio::task::yield_now().await;
        stream.gap.owe(Reset::Overflow);
        let told = tokio::time::timeout(std::time::Duration::from_secs(5), waiting).await;
        assert!(matches!(
            told.unwrap().unwrap(),
            Some(Delivery::Reset(Reset::Overflow))
        ));
    }
}
