//! From settings to a running instance.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::cache::{self, position::Position};
use crate::config::Config;
use crate::emit::{Here, Queue, Switch, Writer};
use crate::error::{Error, Result};
use crate::event::LoggedEvent;
use crate::feed::{Feed, Shared, Sync, Warden};
use crate::instance::{Inner, Pgevict, SHUTDOWN_GRACE};
use crate::sink::{Handlers, Outcome, Pattern, Registered, Reset, Sinks, Whose};
use crate::status::{Listening, Meters};
use crate::store::session::Connector;
use crate::wake::{Backoff, Listener, Signal};

type WarmUp = Box<dyn FnOnce(Pgevict) -> BoxFuture<'static, Result<()>> + Send>;

/// Prepares an instance: handlers, warm-up, start.
pub struct Builder {
    config: Config,
    handlers: Vec<Result<Registered>>,
    warm_up: Option<WarmUp>,
}

impl Builder {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            handlers: Vec::new(),
            warm_up: None,
        }
    }

    /// Calls `handler` for every event whose type fits `pattern` (`queue.updated`, `queue.*`, `*`), in order.
    ///
    /// An error or panic is logged and counted by pattern; the other handlers still run. A handler that cannot
    /// follow (10,000 events behind) loses events and the reset handlers are told.
    #[must_use]
    pub fn on<F, Fut>(self, pattern: &str, handler: F) -> Self
    where
        F: Fn(Arc<LoggedEvent>) -> Fut + Send + std::marker::Sync + 'static,
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        self.register(pattern, Whose::Everybodys, handler)
    }

    /// As [`Builder::on`], without the events that this instance emitted. Eviction never skips them.
    #[must_use]
    pub fn on_others<F, Fut>(self, pattern: &str, handler: F) -> Self
    where
        F: Fn(Arc<LoggedEvent>) -> Fut + Send + std::marker::Sync + 'static,
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        self.register(pattern, Whose::Others, handler)
    }

    /// Calls `handler` when all that was derived from earlier events is void, or events were dropped.
    #[must_use]
    pub fn on_reset<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Reset) -> Fut + Send + std::marker::Sync + 'static,
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        self.handlers.push(Ok(Registered::on_resets(handler)));
        self
    }

    fn register<F, Fut>(mut self, pattern: &str, whose: Whose, handler: F) -> Self
    where
        F: Fn(Arc<LoggedEvent>) -> Fut + Send + std::marker::Sync + 'static,
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        let registered = Pattern::new(pattern).map(|pattern| Registered::on_events(pattern, whose, handler));
        self.handlers.push(registered);
        self
    }

    /// Loads before the instance counts as ready. It runs after LISTEN and the first fetch, so what it reads is
    /// watched: fill caches through their tokens (`get_or_load`) and an overtaken load is not kept.
    #[must_use]
    pub fn warm_up<F, Fut>(mut self, load: F) -> Self
    where
        F: FnOnce(Pgevict) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.warm_up = Some(Box::new(move |pgevict| load(pgevict).boxed()));
        self
    }

    /// Starts; returns when listening (or known not to: then polling, see [`Pgevict::status`]), caught up and
    /// warmed up.
    ///
    /// # Errors
    /// Invalid or refused at once when an address, a password, the installation or a pattern is wrong; timeout
    /// after `feed.sync_timeout` when the server cannot be reached; the error of the warm-up.
    pub async fn start(self) -> Result<Pgevict> {
        let Self {
            config,
            handlers,
            warm_up,
        } = self;
        config.check()?;
        let handlers = handlers.into_iter().collect::<Result<Vec<_>>>()?;
        let (pgevict, trouble) = wire(config, handlers)?;
        let deadline = pgevict.0.config.feed.sync_timeout;
        let ready = async {
            ready(&pgevict, trouble.clone()).await?;
            match warm_up {
                Some(load) => load(pgevict.clone()).await,
                None => Ok(()),
            }
        };
        let started = match timeout(deadline, ready).await {
            Ok(started) => started,
            Err(_) => Err(not_ready(deadline, trouble.borrow().clone())),
        };
        match started {
            Ok(()) => Ok(pgevict),
            Err(error) => {
                pgevict.shutdown().await;
                Err(error)
            }
        }
    }
}

fn not_ready(deadline: Duration, trouble: Option<Arc<Error>>) -> Error {
    let shown = humantime::format_duration(deadline);
    match trouble {
        Some(error) if error.is_unreachable() => {
            Error::unreachable(format!("not ready within {shown} (feed.sync_timeout): {error}"))
                .because(error)
        }
        Some(error) => {
            Error::timeout(format!("not ready within {shown} (feed.sync_timeout): {error}")).because(error)
        }
        None => Error::timeout(format!(
            "not ready within {shown} (feed.sync_timeout): the warm-up takes longer"
        )),
    }
}

/// LISTEN first, then a fetch that was sent after it.
async fn ready(pgevict: &Pgevict, mut trouble: watch::Receiver<Option<Arc<Error>>>) -> Result<()> {
    if pgevict.0.switch == Switch::Off {
        return Ok(());
    }
    let hopeless = async {
        let found = trouble.wait_for(|trouble| {
            trouble
                .as_deref()
                .is_some_and(|error| (error.is_refused() && !error.is_standby()) || error.is_invalid())
        });
        match found.await {
            Ok(error) => match error.clone() {
                Some(error) if error.is_invalid() => Error::invalid(error.to_string()).because(error),
                Some(error) => Error::refused(error.to_string()).because(error),
                None => Error::unreachable("the feed has ended"),
            },
            Err(_) => Error::unreachable("the feed has ended"),
        }
    };
    let caught_up = async {
        let mut listening = pgevict.0.listening.clone();
        let settled = listening.wait_for(|listening| *listening != Listening::Connecting);
        drop(
            settled
                .await
                .map_err(|_| Error::unreachable("the LISTEN task has ended"))?,
        );
        // Bounded by the deadline of the whole start.
        pgevict.0.sync.sync(pgevict.0.config.feed.sync_timeout * 2).await
    };
    tokio::select! {
        error = hopeless => Err(error),
        done = caught_up => done,
    }
}

/// Makes the parts, joins them and spawns their tasks.
fn wire(config: Config, handlers: Vec<Registered>) -> Result<(Pgevict, watch::Receiver<Option<Arc<Error>>>)> {
    let instance_id: Arc<str> = match &config.instance_id {
        Some(id) => Arc::from(id.as_str()),
        None => Arc::from(Uuid::new_v4().to_string()),
    };
    let position = Arc::new(Position::default());
    let sinks = Arc::new(Sinks::default());
    let caches = cache::Shared::new(position.clone(), sinks.clone(), &config);
    let sync = Arc::new(Sync::default());
    let meters = Arc::new(Meters::default());
    let signal = Arc::new(Signal::default());
    let tasks = TaskTracker::new();
    let (stop, abandon) = (CancellationToken::new(), CancellationToken::new());
    let (listening_here, listening) = watch::channel(match config.wake.listen {
        true => Listening::Connecting,
        false => Listening::Off,
    });
    let (trouble_here, trouble) = watch::channel(None);
    let switch = if config.enabled { Switch::On } else { Switch::Off };
    let here = Here {
        position: position.clone(),
        sinks: sinks.clone(),
    };
    let (queue, waiting) = Queue::new(&config.emit, switch, meters.clone());
    if config.enabled {
        let listen_url = config.listen_address()?;
        let url = if config.url.is_some() {
            config.address()?
        } else {
            listen_url.clone()
        };
        let connector = |address| Connector::new(address, config.session.clone(), instance_id.clone());
        let backoff = Backoff::new(config.session.backoff_min, config.session.backoff_max);
        if !handlers.is_empty() {
            let spawn = |task| drop(tasks.spawn(task));
            let handlers = Handlers::start(handlers, instance_id.clone(), &meters, &stop, &abandon, spawn);
            sinks.attach(|| Arc::new(handlers));
        }
        let session = watch::Sender::new(None);
        let process = Uuid::new_v4();
        if config.wake.listen {
            let listener = Listener {
                direct: connector(listen_url.clone()),
                other: connector(url.clone()),
                fetch: session.subscribe(),
                settings: config.wake.clone(),
                backoff: backoff.clone(),
                signal: signal.clone(),
                listening: listening_here,
                meters: meters.clone(),
            };
            tasks.spawn(listener.run(stop.clone()));
        }
        if config.warden.enabled && config.wake.listen {
            let warden = Warden {
                connector: connector(listen_url.clone()),
                settings: config.warden.clone(),
                instance_id: instance_id.clone(),
                process,
                listening: listening.clone(),
                fetch: session.subscribe(),
                meters: meters.clone(),
            };
            tasks.spawn(warden.run(stop.clone()));
        }
        let writer = Writer {
            waiting,
            connector: connector(url),
            settings: config.emit.clone(),
            backoff: backoff.clone(),
            instance_id: instance_id.clone(),
            here: here.clone(),
            meters: meters.clone(),
            grace: SHUTDOWN_GRACE,
        };
        tasks.spawn(writer.run(stop.clone(), abandon.clone()));
        let shared = Shared {
            position: position.clone(),
            sinks: sinks.clone(),
            signal,
            sync: sync.clone(),
            meters: meters.clone(),
            listening: listening.clone(),
            session,
            process,
            trouble: trouble_here,
        };
        let (settings, staleness) = (config.feed.clone(), config.max_staleness);
        let feed = Feed::new(
            connector(listen_url),
            settings,
            staleness,
            instance_id.clone(),
            backoff,
            shared,
        );
        tasks.spawn(feed.run(stop.clone()));
    }
    let pgevict = Pgevict(Arc::new(Inner {
        config,
        instance_id,
        switch,
        here,
        queue,
        sync,
        meters,
        caches,
        listening,
        tasks,
        stop,
        abandon,
    }));
    Ok((pgevict, trouble))
}
