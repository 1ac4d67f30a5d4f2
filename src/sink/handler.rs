//! In-process handlers, by type or pattern. Each has its own queue and task: one that fails, panics or hangs
//! neither reaches the others nor the feed. Eviction never depends on a handler.

use std::any::Any;
use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::event::LoggedEvent;
use crate::sink::{Origin, Pattern, Reset, Sink};
use crate::status::Meters;

/// Events that wait for one handler; beyond it they are dropped and the reset handlers are told.
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
}

struct Running {
    wants: Wants,
    queue: mpsc::Sender<Item>,
    /// Events have been dropped since the queue was last empty.
    overflowed: Arc<AtomicBool>,
}

impl Handlers {
    /// Starts a task for each handler through `spawn`.
    pub(crate) fn start(
        registered: Vec<Registered>,
        instance_id: Arc<str>,
        meters: &Arc<Meters>,
        stop: &CancellationToken,
        spawn: impl Fn(BoxFuture<'static, ()>),
    ) -> Self {
        let running = registered
            .into_iter()
            .map(|handler| {
                let (queue, items) = mpsc::channel(QUEUE);
                let overflowed = Arc::new(AtomicBool::new(false));
                let Registered { name, wants, call } = handler;
                let work = work(
                    name,
                    call,
                    items,
                    overflowed.clone(),
                    meters.clone(),
                    stop.clone(),
                );
                spawn(work.boxed());
                Running {
                    wants,
                    queue,
                    overflowed,
                }
            })
            .collect();
        Self { instance_id, running }
    }

    fn hand_over(&self, event: &Arc<LoggedEvent>) {
        let own = event.source.as_deref() == Some(&*self.instance_id);
        let mut overflow = false;
        for handler in &self.running {
            let wanted = match &handler.wants {
                Wants::Events(pattern, whose) => pattern.matches(event) && !(own && *whose == Whose::Others),
                Wants::Resets => false,
            };
            if wanted && handler.queue.try_send(Item::Event(event.clone())).is_err() {
                overflow |= !handler.overflowed.swap(true, Ordering::Relaxed);
            }
        }
        if overflow {
            tracing::warn!(
                "a handler is too slow for its queue: events are dropped, reset handlers are told"
            );
            self.reset(Reset::Overflow);
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
        for handler in &self.running {
            if matches!(handler.wants, Wants::Resets) {
                // A full queue of resets says the same already.
                drop(handler.queue.try_send(Item::Reset(cause)));
            }
        }
    }
}

async fn work(
    name: String,
    call: Call,
    mut items: mpsc::Receiver<Item>,
    overflowed: Arc<AtomicBool>,
    meters: Arc<Meters>,
    stop: CancellationToken,
) {
    loop {
        let item = tokio::select! {
            biased;
            item = items.recv() => item,
            () = stop.cancelled() => None,
        };
        let Some(item) = item else { return };
        let called = AssertUnwindSafe(async { call(item).await }).catch_unwind().await;
        let problem = match called {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(format!("panicked: {}", panic_text(&*panic))),
        };
        if let Some(error) = problem {
            meters.handler_failed(&name);
            tracing::error!(handler = name, error, "handler failed; the others go on");
        }
        if items.is_empty() {
            overflowed.store(false, Ordering::Relaxed);
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
