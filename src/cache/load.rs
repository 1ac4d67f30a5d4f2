//! Loading on a miss, once for all who ask at the same time.

use std::any::Any;
use std::error::Error as StdError;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, timeout_at};

use super::clock::Moment;
use super::flight::{Failure, Flight, Leader, Outcome, Seat};
use super::lookup::{Answer, Freshness, Lookup};
use super::mark::Mark;
use super::near::{Core, NearCache};
use super::token::FillToken;
use crate::error::{Error, Result};
use crate::event::{Key, Tag};

/// What a loader is given: the maker of its answer.
#[derive(Debug)]
pub struct Load {
    token: Option<FillToken>,
}

impl Load {
    /// The load found a value.
    pub fn found<V>(&self, value: V) -> Loaded<V> {
        self.loaded(Some(value))
    }

    /// The load found that there is none. This is kept like a value, tags and all.
    pub fn absent<V>(&self) -> Loaded<V> {
        self.loaded(None)
    }

    /// The token that the load runs under; `None` when nothing can be stored.
    pub fn token(&self) -> Option<&FillToken> {
        self.token.as_ref()
    }

    fn loaded<V>(&self, value: Option<V>) -> Loaded<V> {
        Loaded {
            value,
            tags: Vec::new(),
            token: self.token.clone(),
        }
    }
}

/// What a loader found, with the tags under which events reach it.
#[derive(Debug)]
#[must_use]
pub struct Loaded<V> {
    value: Option<V>,
    tags: Vec<Tag>,
    token: Option<FillToken>,
}

impl<V> Loaded<V> {
    /// Adds a tag.
    pub fn tag(mut self, tag: Tag) -> Self {
        self.tags.push(tag);
        self
    }

    /// Adds tags.
    pub fn tags(mut self, tags: impl IntoIterator<Item = Tag>) -> Self {
        self.tags.extend(tags);
        self
    }

    /// Says that the value was not read on the primary after the load began, but as the [`Mark`] says: on a standby, or
    /// in a transaction that was open before. What the mark does not prove to be new enough is not stored; the callers
    /// get it all the same.
    pub fn marked(mut self, mark: &Mark) -> Self {
        self.token = self.token.and_then(|token| token.marked(mark));
        self
    }

    /// Replaces the token by what the loader knows better, such as [`FillToken::read_at`]; `None` = do not
    /// store.
    pub fn under(mut self, token: Option<FillToken>) -> Self {
        self.token = token;
        self
    }
}

/// The loads that the present task is in the middle of, innermost first.
#[derive(Clone)]
struct Within(Arc<Link>);

struct Link {
    cache: usize,
    key: Key,
    outer: Option<Within>,
}

tokio::task_local! {
    static WITHIN: Within;
}

impl Within {
    fn current() -> Option<Self> {
        WITHIN.try_with(Clone::clone).ok()
    }

    fn holds(&self, cache: usize, key: &Key) -> bool {
        let mut link = Some(self);
        while let Some(Within(inner)) = link {
            if inner.cache == cache && inner.key == *key {
                return true;
            }
            link = inner.outer.as_ref();
        }
        false
    }
}

/// When a caller came, and what it may share.
#[derive(Clone, Copy)]
struct Arrival {
    /// Number of the last event recorded before.
    seq: u64,
    at: Moment,
    /// The cache could be proved fresh then.
    fresh: bool,
    /// It met a load whose tags an event had touched: it shares only loads that began after it arrived.
    strict: bool,
}

/// How long past its deadline a load may still be on its way to say so.
const GRACE: Duration = Duration::from_secs(1);

impl<V: Clone + Send + Sync + 'static> NearCache<V> {
    /// Gives what is held under the key, or loads it: one loader for all who ask at the same time.
    ///
    /// - The value is never older than an event applied before this call that touches the key or its tags: such
    ///   a caller does not share a load that began before the event. (A loader that reads elsewhere, and says so by
    ///   [`Loaded::marked`], gives what it finds there, as old as that may be; it is not kept.)
    /// - The value is kept if no event overtook the read; otherwise the callers get it and the cache does not.
    /// - The loader runs inside the future of one of the callers. If that one is dropped, another of them runs
    ///   its own loader.
    /// - At most `max_loads` run at once in an instance, whether or not their results can be stored. A load
    ///   that a loader makes in turn, in the same task, needs no further turn, so nesting cannot deadlock on
    ///   it. Do not await from a loader a load that was spawned on another task.
    ///
    /// # Errors
    /// For all who wait on the load: the loader's error (as the cause) or panic ([`Error::is_loader`]), or that
    /// `load_timeout` passed ([`Error::is_timeout`]). [`Error::is_stale`] when an entry is held that cannot be
    /// proved fresh and the policy is to fail. [`Error::is_refused`] when a loader asks for the key that it is
    /// loading. An error is never kept: the next caller loads again.
    pub async fn get_or_load<F, Fut, E>(&self, key: &Key, loader: F) -> Result<Answer<V>>
    where
        F: FnOnce(Load) -> Fut,
        Fut: Future<Output = std::result::Result<Loaded<V>, E>>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        if let Some(answer) = served(key, self.get(key)) {
            return answer;
        }
        let core = &*self.core;
        let mut arrival = core.arrival();
        let within = Within::current();
        if within.as_ref().is_some_and(|within| within.holds(core.id(), key)) {
            return Err(Error::refused(format!(
                "the loader of {key:?} asks for {key:?} itself: load the parts under keys of their own"
            )));
        }
        loop {
            let deadline = Instant::now() + core.settings.load_timeout;
            let now = core.shared.position.now();
            let seat = core.flights.board(key, now, deadline, |flight| {
                core.serves(flight, key, &[], arrival)
            });
            let (flight, joined) = match seat {
                Seat::Lead(leader) => return core.lead(leader, key, loader, within).await,
                Seat::Join(flight) => (flight, true),
                Seat::Full(flight) => (flight, false),
            };
            if joined && within.is_some() {
                // We hold a turn that it may be waiting for.
                flight.hurry.notify_one();
            }
            match timeout_at(flight.deadline + GRACE, flight.outcome()).await {
                Ok(Some(outcome)) if joined => match &*outcome {
                    Outcome::Failed(failure) => return Err(failure.error(key)),
                    Outcome::Loaded(value, tags) => {
                        if core.serves(&flight, key, tags, arrival) {
                            return Ok(Answer::new(value.clone(), Freshness::Fresh));
                        }
                        arrival.strict = true;
                    }
                },
                Ok(_) => {}
                Err(_) => core.flights.strike(key, &flight),
            }
            if let Some(answer) = served(key, core.look(key)) {
                return answer;
            }
        }
    }
}

fn served<V>(key: &Key, lookup: Lookup<V>) -> Option<Result<Answer<V>>> {
    match lookup {
        Lookup::Hit(value, freshness) => Some(Ok(Answer::new(Some(value), freshness))),
        Lookup::Absent(freshness) => Some(Ok(Answer::new(None, freshness))),
        Lookup::Stale => Some(Err(Error::stale(format!(
            "the value of {key:?} cannot be proved fresh: this instance is cut off from the database"
        )))),
        Lookup::Miss => None,
    }
}

impl<V: Clone + Send + Sync + 'static> Core<V> {
    fn id(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn arrival(&self) -> Arrival {
        let at = self.shared.position.now();
        Arrival {
            seq: self.shared.memory.seq(),
            at,
            fresh: self.shared.position.is_fresh_at(at, self.settings.max_staleness),
            strict: false,
        }
    }

    /// True when a caller may have the result of the load.
    ///
    /// While the cache cannot be proved fresh, changes may have been made of which no event has come. Then the
    /// load must have begun at most `max_staleness` before the caller arrived: its result is no older than a
    /// fresh hit could be.
    fn serves(&self, flight: &Flight<V>, key: &Key, tags: &[Tag], arrival: Arrival) -> bool {
        let Some(began) = flight.began() else {
            return true;
        };
        if began < arrival.seq {
            let touched = || self.shared.memory.read().touched(key, tags, began, arrival.seq);
            if arrival.strict || touched() {
                return false;
            }
        }
        let limit = i64::try_from(self.settings.max_staleness.as_nanos()).unwrap_or(i64::MAX);
        arrival.fresh || arrival.at.boot - flight.registered.boot <= limit
    }

    async fn lead<F, Fut, E>(
        &self,
        leader: Leader<'_, V>,
        key: &Key,
        loader: F,
        within: Option<Within>,
    ) -> Result<Answer<V>>
    where
        F: FnOnce(Load) -> Fut,
        Fut: Future<Output = std::result::Result<Loaded<V>, E>>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let flight = &leader.flight;
        let nested = within.is_some();
        let link = Within(Arc::new(Link {
            cache: self.id(),
            key: key.clone(),
            outer: within,
        }));
        let run = async {
            // Whoever waits here holds no turn, so those who do are never behind it.
            let _turn = if nested {
                None
            } else {
                tokio::select! {
                    turn = self.shared.loads.acquire() => turn.ok(),
                    () = flight.hurry.notified() => None,
                }
            };
            self.counters.loads.add(1);
            // Number first, token second, read third: what the number covers was committed before the read.
            flight.begin(self.shared.memory.seq());
            let load = Load {
                token: self.shared.position.token(),
            };
            WITHIN.scope(link, async move { loader(load).await }).await
        };
        let outcome = match timeout_at(flight.deadline, AssertUnwindSafe(run).catch_unwind()).await {
            Ok(Ok(Ok(loaded))) => {
                if let Some(token) = &loaded.token {
                    // A refusal is counted; the callers get the value all the same.
                    let _ = self.store(key, loaded.value.clone(), &loaded.tags, token);
                }
                Outcome::Loaded(loaded.value, loaded.tags)
            }
            Ok(Ok(Err(error))) => Outcome::Failed(Failure::Loader(Arc::from(error.into()))),
            Ok(Err(panic)) => Outcome::Failed(Failure::Panic(panic_text(&*panic))),
            Err(_) => Outcome::Failed(Failure::Deadline),
        };
        let answer = match &outcome {
            Outcome::Loaded(value, _) => Ok(Answer::new(value.clone(), Freshness::Fresh)),
            Outcome::Failed(failure) => {
                self.counters.load_errors.add(1);
                Err(failure.error(key))
            }
        };
        leader.end(Arc::new(outcome));
        answer
    }
}

impl Failure {
    fn error(&self, key: &Key) -> Error {
        match self {
            Self::Loader(cause) => {
                Error::loader(format!("loading {key:?} failed")).because_shared(cause.clone())
            }
            Self::Panic(text) => Error::loader(format!("the loader of {key:?} panicked: {text}")),
            Self::Deadline => Error::timeout(format!("loading {key:?} passed its deadline")),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
