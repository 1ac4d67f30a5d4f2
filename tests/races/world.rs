//! A feed that the test drives: it applies first and publishes the cursor after, as the real one does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use pgevict::cache::clock::{Clock, Hands};
use pgevict::cache::position::Position;
use pgevict::cache::{Attached, CacheBuilder, Evict, NearCache, Shared};
use pgevict::config::Config;
use pgevict::event::{Announced, Event, Key, LoggedEvent, Prefix, Tag};
use pgevict::sink::{Origin, Reset, Sinks};
use pgevict::snapshot::{Identity, Life, Snapshot, Xid};
use uuid::Uuid;

pub(crate) struct World {
    pub(crate) position: Arc<Position>,
    pub(crate) sinks: Arc<Sinks>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) hands: Arc<Hands>,
    next: AtomicU64,
}

impl World {
    /// A started instance whose feed stands at 100:100:.
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let world = Self::unstarted(config);
        world.publish("100:100:");
        world
    }

    pub(crate) fn unstarted(config: Config) -> Self {
        let (clock, hands) = Clock::manual();
        let position = Arc::new(Position::with_clock(clock));
        let sinks = Arc::new(Sinks::default());
        Self {
            shared: Shared::new(position.clone(), sinks.clone(), &config),
            position,
            sinks,
            hands,
            next: AtomicU64::new(100),
        }
    }

    pub(crate) fn cache<V: Clone + Send + Sync + 'static>(&self) -> NearCache<V> {
        self.builder().build()
    }

    pub(crate) fn builder<V: Clone + Send + Sync + 'static>(&self) -> CacheBuilder<V> {
        NearCache::builder(self.shared.clone())
    }

    pub(crate) fn attach<C: Evict>(&self, cache: C) -> Attached<C> {
        Attached::new(self.shared.clone(), cache)
    }

    /// Applies one event without publishing.
    pub(crate) fn apply(&self, xid: u64, event: Event, origin: Origin) {
        self.apply_all(&[logged(xid, event)], origin);
    }

    pub(crate) fn apply_all(&self, events: &[Arc<LoggedEvent>], origin: Origin) {
        self.sinks.with(|sinks| {
            if events.iter().any(|event| event.empties_everything()) {
                self.position.void();
            }
            for sink in sinks {
                sink.apply(events, origin);
            }
        });
    }

    pub(crate) fn publish(&self, cursor: &str) {
        self.publish_snapshot(snapshot(cursor));
    }

    pub(crate) fn publish_snapshot(&self, cursor: Arc<Snapshot>) {
        self.sinks.with(|sinks| {
            self.position.publish(cursor.clone(), self.position.now());
            for sink in sinks {
                sink.published(&cursor);
            }
        });
    }

    /// Publishes a cursor, and a place in the WAL that holds all that it sees.
    pub(crate) fn publish_at(&self, cursor: Arc<Snapshot>, life: u128, lsn: u64) {
        let life = Life {
            epoch: Uuid::from_u128(life),
            identity: Identity {
                system_identifier: 1,
                database: 2,
                event_table: 3,
            },
        };
        self.sinks.with(|sinks| {
            let (as_of, lsn) = (self.position.now(), lsn.into());
            self.position.publish_at(cursor.clone(), as_of, life, lsn);
            for sink in sinks {
                sink.published(&cursor);
            }
        });
    }

    pub(crate) fn reset(&self, cause: Reset) {
        self.sinks.with(|sinks| {
            self.position.withdraw();
            for sink in sinks {
                sink.reset(cause);
            }
        });
    }

    /// One committed change that the feed has handled: applied and published.
    pub(crate) fn change(&self, event: Event) {
        let xid = self.next.fetch_add(1, Ordering::SeqCst);
        self.apply(xid, event, Origin::Feed);
        let head = xid + 1;
        self.publish(&format!("{head}:{head}:"));
    }
}

pub(crate) fn logged(xid: u64, event: Event) -> Arc<LoggedEvent> {
    Arc::new(LoggedEvent {
        xid: Xid(xid),
        id: xid as i64,
        uuid: Uuid::from_u128(u128::from(xid)),
        version: 1,
        announced: Announced::Notify,
        created_at: SystemTime::UNIX_EPOCH,
        event,
    })
}

pub(crate) fn snapshot(text: &str) -> Arc<Snapshot> {
    Arc::new(text.parse().unwrap())
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn tag(text: &str) -> Tag {
    Tag::new(text).unwrap()
}

pub(crate) fn prefix(text: &str) -> Prefix {
    Prefix::new(text).unwrap()
}

/// The ways in which an event can touch the entry `product:1`, tagged `category:7`.
pub(crate) fn every_touch() -> [(&'static str, Event); 5] {
    [
        ("key", Event::default().key(key("product:1"))),
        ("tag", Event::default().tag(tag("category:7"))),
        ("prefix of the key", Event::default().prefix(prefix("product:"))),
        ("prefix of a tag", Event::default().prefix(prefix("cat"))),
        ("flush", Event::flush()),
    ]
}

/// The loader's error in tests that expect none.
pub(crate) type Never = std::convert::Infallible;
