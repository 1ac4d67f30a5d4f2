//! A TCP relay that fails on demand.
//!
//! ```text
//! client ── accepted ──┬─ pump: read, hold, delay, gate, write ──> server
//!                      └─ pump: read,       delay, gate, write <── server
//! ```
//!
//! One task accepts, one task per connection runs its two pumps. All of them watch one value, [`Faults`]; a
//! method changes it and returns at once, and from then on no further byte passes that should not. The listener
//! stays open whatever happens, so that the attempts of a client that is refused can be counted.

mod pump;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::Cluster;
use crate::{Error, Result};

/// A relay on `127.0.0.1` in front of one address. Clones are handles of the same relay; with the last one it
/// ends, and with it its connections.
#[derive(Debug, Clone)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    faults: watch::Sender<Faults>,
    attempts: Mutex<Vec<Instant>>,
    /// Connections that are open, and chunks that are held back, now.
    open: watch::Sender<usize>,
    held: watch::Sender<usize>,
}

/// What goes wrong at the moment.
#[derive(Debug, Clone, Default)]
struct Faults {
    gate: Gate,
    /// Every accepted client is reset at once.
    refuse: bool,
    delay: Duration,
    hold: Option<Hold>,
    /// Raised to close the connections there are.
    closings: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Open,
    Shut,
}

#[derive(Debug, Clone)]
struct Hold {
    needle: Arc<[u8]>,
    time: Duration,
}

impl Relay {
    /// Starts a relay to `target`, passing everything.
    ///
    /// # Errors
    /// Refused when no port can be opened. `target` is not tried; a client that cannot be connected to it is
    /// closed.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let refused = |error| Error::refused("no port for the relay on 127.0.0.1").because(error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let shared = Arc::new(Shared {
            target,
            faults: watch::Sender::default(),
            attempts: Mutex::default(),
            open: watch::Sender::default(),
            held: watch::Sender::default(),
        });
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, shared.clone(), stop.clone()));
        Ok(Self {
            address,
            shared,
            _stop: Arc::new(stop.drop_guard()),
        })
    }

    /// A relay in front of `cluster`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn before(cluster: &Cluster) -> Result<Self> {
        Self::start(cluster.address()).await
    }

    /// The address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the database `postgres` of `cluster` through this relay.
    pub fn url(&self, cluster: &Cluster) -> String {
        self.url_for(cluster, "postgres")
    }

    /// As [`url`](Self::url), for another database.
    pub fn url_for(&self, cluster: &Cluster, database: &str) -> String {
        cluster.url_at(self.address, database)
    }

    /// Ends every fault. Connections that were frozen go on, with nothing lost.
    pub fn pass(&self) {
        self.change(|faults| {
            *faults = Faults {
                closings: faults.closings,
                ..Faults::default()
            };
        });
    }

    /// Resets every new connection; those that exist go on.
    pub fn refuse(&self) {
        self.change(|faults| faults.refuse = true);
    }

    /// Closes every connection and resets new ones until [`pass`](Self::pass).
    pub fn cut(&self) {
        self.change(|faults| {
            faults.refuse = true;
            faults.closings += 1;
        });
    }

    /// Closes every connection; new ones are served.
    pub fn close_existing(&self) {
        self.change(|faults| faults.closings += 1);
    }

    /// Passes nothing on, in either direction, and closes nothing: as a network that swallows packets. New
    /// connections are accepted and hear nothing. Bytes that arrive are kept for [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        self.change(|faults| faults.gate = Gate::Shut);
    }

    /// Ends [`freeze`](Self::freeze) only.
    pub fn thaw(&self) {
        self.change(|faults| faults.gate = Gate::Open);
    }

    /// Every chunk of either direction waits this long, one after the other: latency to a dialogue of questions
    /// and answers, and a narrow line to a flood.
    pub fn delay(&self, time: Duration) {
        self.change(|faults| faults.delay = time);
    }

    /// Every chunk from a client that holds these bytes waits this long, and so does what follows it on its
    /// connection; other connections go on. [`pass`](Self::pass) lets it go at once.
    pub fn hold_matching(&self, needle: impl AsRef<[u8]>, time: Duration) {
        let hold = Hold {
            needle: needle.as_ref().into(),
            time,
        };
        self.change(|faults| faults.hold = Some(hold));
    }

    /// Connections accepted so far, refused ones included.
    pub fn attempts(&self) -> usize {
        self.shared.attempts().len()
    }

    /// When each of them was accepted, the oldest first.
    pub fn attempt_times(&self) -> Vec<Instant> {
        self.shared.attempts().clone()
    }

    /// Connections that are open now, from the relay's view.
    pub fn open_connections(&self) -> usize {
        *self.shared.open.borrow()
    }

    /// Chunks that [`hold_matching`](Self::hold_matching) holds back now.
    pub fn held(&self) -> usize {
        *self.shared.held.borrow()
    }

    /// Waits until exactly `count` connections are open.
    pub async fn until_open(&self, count: usize) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.shared.open.subscribe().wait_for(|open| *open == count).await;
    }

    /// Waits until at least `count` chunks are held back.
    pub async fn until_held(&self, count: usize) {
        let _ = self.shared.held.subscribe().wait_for(|held| *held >= count).await;
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        self.shared.faults.send_modify(change);
    }
}

impl Shared {
    fn attempts(&self) -> std::sync::MutexGuard<'_, Vec<Instant>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds one to a count while it lives.
struct Counted<'a>(&'a watch::Sender<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let client = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                // Out of file descriptors: give others time to close some.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
        };
        shared.attempts().push(Instant::now());
        // Subscribed before the look at `refuse`: a closing from now on is seen by the connection.
        let faults = shared.faults.subscribe();
        let Faults { refuse, closings, .. } = *faults.borrow();
        if refuse {
            let _ = client.set_zero_linger();
            continue;
        }
        let (shared, stop) = (shared.clone(), stop.clone());
        connections.spawn(async move {
            let _open = Counted::new(&shared.open);
            let mut closing = faults.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                _ = closing.wait_for(|faults| faults.closings != closings) => {}
                () = pump::connection(client, &shared, faults) => {}
            }
        });
    }
}
