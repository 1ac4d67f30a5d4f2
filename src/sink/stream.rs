//! Following the events of an instance as they are applied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::mpsc;
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
#[derive(Debug, Default)]
struct Gap(AtomicU8);

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
        self.0.store(code, Ordering::Release);
    }

    fn settle(&self) -> Option<Reset> {
        match self.0.swap(0, Ordering::AcqRel) {
            0 => None,
            code => Some(Self::RESETS[usize::from(code) - 1]),
        }
    }
}

impl Subscription {
    /// The next delivery; `None` once the instance has stopped.
    pub async fn next(&mut self) -> Option<Delivery> {
        // What is queued came before the gap.
        if self.queue.is_empty()
            && let Some(cause) = self.gap.settle()
        {
            return Some(Delivery::Reset(cause));
        }
        tokio::select! {
            biased;
            delivery = self.queue.recv() => delivery,
            // What was queued has been handed out by now.
            () = self.stop.cancelled() => None,
        }
    }
}

/// The feed's end of a subscription.
pub(crate) struct Stream {
    queue: mpsc::Sender<Delivery>,
    gap: Arc<Gap>,
}

/// Both ends; `stop`: the instance has stopped.
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
            if self.gap.0.load(Ordering::Acquire) != 0 {
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
}
