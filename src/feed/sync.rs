//! `sync()`: resolves when a fetch that was sent after the call is complete. Calls of one moment share one fetch.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::{Error, Result};

/// Requests and completions, counted.
#[derive(Debug)]
pub(crate) struct Sync {
    requested: watch::Sender<u64>,
    completed: watch::Sender<u64>,
}

impl Default for Sync {
    fn default() -> Self {
        Self {
            requested: watch::Sender::new(0),
            completed: watch::Sender::new(0),
        }
    }
}

impl Sync {
    /// Waits for a complete fetch that was sent after this call.
    ///
    /// # Errors
    /// Timeout after `deadline`.
    pub(crate) async fn sync(&self, deadline: Duration) -> Result<()> {
        let mut mine = 0;
        self.requested.send_modify(|requested| {
            *requested += 1;
            mine = *requested;
        });
        let mut completed = self.completed.subscribe();
        let waited = timeout(deadline, completed.wait_for(|completed| *completed >= mine)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::timeout(format!(
                "sync: no fetch was complete within {}",
                humantime::format_duration(deadline)
            ))),
        }
    }

    /// For the feed: resolves when there are requests that no fetch has been sent for.
    pub(crate) fn requests(&self) -> watch::Receiver<u64> {
        self.requested.subscribe()
    }

    /// For the feed: all requests up to `request` are answered.
    pub(crate) fn complete(&self, request: u64) {
        self.completed.send_replace(request);
    }
}
