//! In-process handlers, by type or pattern. Each has its own queue and task: one that fails, panics or hangs
//! neither reaches the others nor the feed. Eviction never depends on a handler.

use std::any::Any;
use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::event::LoggedEvent;
use crate::sink::{Origin, Pattern, Reset, Sink};
use crate::status::Meters;

/// Events that wait for one handler; beyond it they are dropped until it has handled these, and the reset handlers
/// are told when that begins and when it is over.
const QUEUE: usize = 10_000;

/// What a handler returns: nothing, or a result whose error is logged and counted.
pub trait Outcome {
    /// The result.
    fn into_result(self) -> Result<(), Box<dyn StdError + Send + Sync>>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> Outcome for Result<(), E> {
    fn into_result(self) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.map_err(Into::into)
    }
}

/// Whose events a handler gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Everybodys,
    Others,
}

type Problem = Box<dyn StdError + Send + Sync>;
type Call = Arc<dyn Fn(Item) -> BoxFuture<'static, Result<(), Problem>> + Send + Sync>;

/// What is handed to a handler.
#[derive(Clone)]
pub(crate) enum Item {
    Event(Arc<LoggedEvent>),
    Reset(Reset),
}

/// A handler as registered, before it runs.
pub(crate) struct Registered {
    name: String,
    wants: Wants,
    call: Call,
}

enum Wants {
    Events(Pattern, Whose),
    Resets,
}

impl Registered {
    pub(crate) fn on_events<F, Fut>(pattern: Pattern, whose: Whose, handler: F) -> Self
    where
        F: Fn(Arc<LoggedEvent>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Self {
            name: pattern.to_string(),
            wants: Wants::Events(pattern, whose),
            call: Arc::new(move |item| {
                let handler = handler.clone();
                async move {
                    match item {
                        Item::Event(event) => handler(event).await.into_result(),
                        Item::Reset(_) => Ok(()),
                    }
                }
                .boxed()
            }),
        }
    }

    pub(crate) fn on_resets<F, Fut>(handler: F) -> Self
    where
        F: Fn(Reset) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Self {
            name: "reset".to_owned(),
            wants: Wants::Resets,
            call: Arc::new(move |item| {
                let handler = handler.clone();
                async move {
                    match item {
                        Item::Reset(cause) => handler(cause).await.into_result(),
                        Item::Event(_) => Ok(()),
                    }
                }
                .boxed()
            }),
        }
    }
}

/// The running handlers of one instance.
pub(crate) struct Handlers {
    instance_id: Arc<str>,
    running: Vec<Running>,
    resets: Resets,
}

struct Running {
    wants: Wants,
    queue: mpsc::Sender<Item>,
    gap: Arc<Gap>,
}

/// Events are being dropped. While it is open none is queued, so that the handler comes to its end.
#[derive(Default)]
struct Gap {
    open: AtomicBool,
    /// Wakes a handler that emptied the queue before it could learn of the gap.
    opened: Notify,
}

impl Gap {
    /// True when it was not open before.
    fn open(&self) -> bool {
        let first = !self.open.swap(true, Ordering::AcqRel);
        self.opened.notify_one();
        first
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// True when it was open.
    fn close(&self) -> bool {
        self.open.swap(false, Ordering::AcqRel)
    }
}

/// The queues of the reset handlers.
type Resets = Arc<[mpsc::Sender<Item>]>;

fn tell(resets: &Resets, cause: Reset) {
    for queue in resets.iter() {
        // A full queue of resets says the same already.
        drop(queue.try_send(Item::Reset(cause)));
    }
}

impl Handlers {
    /// Starts a task for each handler through `spawn`. At `stop` they handle what is queued and end; at `abandon`
    /// they end where they are.
    pub(crate) fn start(
        registered: Vec<Registered>,
        instance_id: Arc<str>,
        meters: &Arc<Meters>,
        stop: &CancellationToken,
        abandon: &CancellationToken,
        spawn: impl Fn(BoxFuture<'static, ()>),
    ) -> Self {
        let (queues, items): (Vec<_>, Vec<_>) = registered.iter().map(|_| mpsc::channel(QUEUE)).unzip();
        let of_resets = registered.iter().zip(&queues);
        let of_resets = of_resets.filter(|(handler, _)| matches!(handler.wants, Wants::Resets));
        let resets: Resets = of_resets.map(|(_, queue)| queue.clone()).collect();
        let running = registered
            .into_iter()
            .zip(queues.into_iter().zip(items))
            .map(|(handler, (queue, items))| {
                let gap = Arc::new(Gap::default());
                let Registered { name, wants, call } = handler;
                let worker = Worker {
                    name,
                    call,
                    items,
                    gap: gap.clone(),
                    resets: resets.clone(),
                    meters: meters.clone(),
                };
                let (stop, abandon) = (stop.clone(), abandon.clone());
                spawn(
                    async move {
                        tokio::select! {
                            () = worker.run(stop) => {}
                            () = abandon.cancelled() => {}
                        }
                    }
                    .boxed(),
                );
                Running { wants, queue, gap }
            })
            .collect();
        Self {
            instance_id,
            running,
            resets,
        }
    }

    fn hand_over(&self, event: &Arc<LoggedEvent>) {
        let own = event.source.as_deref() == Some(&*self.instance_id);
        let mut overflow = false;
        for handler in &self.running {
            let wanted = match &handler.wants {
                Wants::Events(pattern, whose) => pattern.matches(event) && !(own && *whose == Whose::Others),
                Wants::Resets => false,
            };
            if wanted && !handler.gap.is_open() && handler.queue.try_send(Item::Event(event.clone())).is_err()
            {
                overflow |= handler.gap.open();
            }
        }
        if overflow {
            tracing::warn!(
                "a handler is too slow for its queue: events are dropped, reset handlers are told"
            );
            tell(&self.resets, Reset::Overflow);
        }
    }
}

impl Sink for Handlers {
    fn apply(&self, events: &[Arc<LoggedEvent>], origin: Origin) {
        // An own event comes back through the feed: handlers see it once.
        if origin == Origin::Feed {
            events.iter().for_each(|event| self.hand_over(event));
        }
    }

    fn reset(&self, cause: Reset) {
        tell(&self.resets, cause);
    }
}

/// One handler and its queue.
struct Worker {
    name: String,
    call: Call,
    items: mpsc::Receiver<Item>,
    gap: Arc<Gap>,
    resets: Resets,
    meters: Arc<Meters>,
}

impl Worker {
    /// Handles what comes until stopped; what is queued by then is still handled.
    async fn run(mut self, stop: CancellationToken) {
        loop {
            // The order of the two looks matters: while the gap is open nothing is queued.
            if self.gap.is_open() && self.items.is_empty() && self.gap.close() {
                // Whoever reloaded when the gap opened has not seen what was dropped after that.
                tell(&self.resets, Reset::Overflow);
            }
            let item = tokio::select! {
                biased;
                item = self.items.recv() => item,
                () = self.gap.opened.notified() => continue,
                () = stop.cancelled() => None,
            };
            let Some(item) = item else { return };
            self.handle(item).await;
        }
    }

    async fn handle(&self, item: Item) {
        let called = AssertUnwindSafe(async { (self.call)(item).await })
            .catch_unwind()
            .await;
        let problem = match called {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(format!("panicked: {}", panic_text(&*panic))),
        };
        if let Some(error) = problem {
            self.meters.handler_failed(&self.name);
            tracing::error!(handler = self.name, error, "handler failed; the others go on");
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;
    use crate::event::{Announced, Event};
    use crate::snapshot::Xid;

    fn event() -> Arc<LoggedEvent> {
        Arc::new(LoggedEvent {
            xid: Xid(1),
            id: 1,
            uuid: uuid::Uuid::nil(),
            version: 1,
            announced: Announced::Silent,
            created_at: SystemTime::UNIX_EPOCH,
            event: Event::new("x"),
        })
    }

    /// A reset handler that reloads at the first dropped event would be stale for ever if it never heard of the later.
    #[tokio::test]
    async fn the_reset_handlers_are_told_again_after_the_last_dropped_event() {
        let permits = Arc::new(Semaphore::new(0));
        let (told_here, mut told) = mpsc::unbounded_channel();
        let (handled_here, mut handled) = mpsc::unbounded_channel();
        let slow = permits.clone();
        let registered = vec![
            Registered::on_events(Pattern::new("*").unwrap(), Whose::Everybodys, move |event| {
                let (slow, handled) = (slow.clone(), handled_here.clone());
                async move {
                    slow.acquire().await.unwrap().forget();
                    let _ = handled.send(event.id);
                }
            }),
            Registered::on_resets(move |cause| {
                let told = told_here.clone();
                async move {
                    let _ = told.send(cause);
                }
            }),
        ];
        let stop = CancellationToken::new();
        let handlers = Handlers::start(
            registered,
            Arc::from("a"),
            &Arc::default(),
            &stop,
            &stop,
            |work| drop(tokio::spawn(work)),
        );
        let soon = Duration::from_secs(5);
        handlers.apply(&vec![event(); QUEUE + 2], Origin::Feed);
        assert_eq!(timeout(soon, told.recv()).await.unwrap(), Some(Reset::Overflow));
        // Dropped after the reset handler has reloaded.
        handlers.apply(&[event()], Origin::Feed);
        permits.add_permits(2 * QUEUE);
        assert_eq!(timeout(soon, told.recv()).await.unwrap(), Some(Reset::Overflow));
        while handled.try_recv().is_ok() {}
        handlers.apply(&[event()], Origin::Feed);
        assert_eq!(timeout(soon, handled.recv()).await.unwrap(), Some(1));
        assert!(told.try_recv().is_err());
        stop.cancel();
    }
}
