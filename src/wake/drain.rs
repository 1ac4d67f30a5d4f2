//! Drains the LISTEN socket. Waits for nothing but the socket, so that the server's queue is never held back.

use std::sync::Arc;
use std::time::Instant;

use futures::future::poll_fn;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use crate::store::connect::Driver;
use crate::store::notify::{PROBE_CHANNEL, WAKE_CHANNEL};
use crate::wake::Signal;

/// The draining task and what it has heard.
pub(crate) struct Drain {
    task: JoinHandle<()>,
    heard: watch::Receiver<Option<Heard>>,
}

/// The last notification of any channel.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) at: Instant,
    /// The random channel of this session's first probe, once heard; later probes do not hide it.
    pub(crate) random: Option<Arc<str>>,
}

impl Drain {
    /// Starts to drain; wakes go to the signal.
    pub(crate) fn start(mut driver: Driver, signal: Arc<Signal>) -> Self {
        let (heard_here, heard) = watch::channel(None::<Heard>);
        let task = tokio::spawn(async move {
            loop {
                match poll_fn(|cx| driver.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        let at = Instant::now();
                        let random = match notification.channel() {
                            WAKE_CHANNEL => {
                                signal.wake(at);
                                None
                            }
                            PROBE_CHANNEL => None,
                            random => Some(Arc::from(random)),
                        };
                        heard_here.send_modify(|heard| {
                            let known = heard.take().and_then(|last| last.random);
                            *heard = Some(Heard {
                                at,
                                random: random.or(known),
                            });
                        });
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(%error, "LISTEN session ended");
                        break;
                    }
                    None => break,
                }
            }
        });
        Self { task, heard }
    }

    /// When anything was last heard.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.heard.borrow().as_ref().map(|heard| heard.at)
    }

    /// Resolves when the session has ended.
    pub(crate) async fn ended(&self) {
        let mut heard = self.heard.clone();
        while heard.changed().await.is_ok() {}
    }

    /// Resolves with true once the random channel has been heard, with false when the session ends before.
    pub(crate) async fn hears(&self, channel: &str) -> bool {
        let mut heard = self.heard.clone();
        heard
            .wait_for(|heard| {
                heard
                    .as_ref()
                    .is_some_and(|heard| heard.random.as_deref() == Some(channel))
            })
            .await
            .is_ok()
    }

    /// Resolves with true once anything is heard after `since`, with false when the session ends before.
    pub(crate) async fn hears_since(&self, since: Instant) -> bool {
        let mut heard = self.heard.clone();
        heard
            .wait_for(|heard| heard.as_ref().is_some_and(|heard| heard.at > since))
            .await
            .is_ok()
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.task.abort();
    }
}
