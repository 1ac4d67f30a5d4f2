//! Random histories against a model of what was committed when.
//!
//! Values are the sets of transactions that the read saw, so "older than an applied change" is plain set
//! membership. Transactions overlap, commit late, are applied early (own writes), twice, and in pages; reads
//! happen on the primary, in a transaction that has long been open there, and on a standby that lags; loads finish in
//! any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pgevict::cache::{FillToken, Mark, Stored};
use pgevict::event::{Event, Key, Tag};
use pgevict::sink::{Origin, Reset};
use pgevict::snapshot::{Snapshot, Xid};
use proptest::prelude::*;

use crate::kinds::{Kind, Make, kinds};
use crate::world::{World, key, logged, prefix, tag};

const KEYS: usize = 3;

const CAPACITY: usize = 1_000;

#[derive(Debug, Clone, Copy)]
enum Touch {
    Key(usize),
    Tag(usize),
    KeyPrefix,
    TagPrefix,
    Flush,
}

#[derive(Debug, Clone)]
enum Step {
    /// A transaction gets its id and will touch this.
    Begin(Touch),
    /// One of the open transactions commits; perhaps its writer applies it at once.
    Commit {
        which: usize,
        own: bool,
    },
    /// A fetch: a page of at most so many of the events that are visible and new.
    Fetch {
        page: usize,
    },
    /// The feed applies again what it has applied before.
    Repeat {
        which: usize,
    },
    /// A load takes its token and reads on the primary.
    Read(usize),
    /// A load takes its token and reads in the open transaction.
    ReadOld(usize),
    /// The open transaction is ended and a new one begun.
    Reopen,
    /// A load takes its token and reads on the standby, perhaps after the place that was replayed.
    ReadStandby {
        key: usize,
        place: bool,
    },
    /// The standby catches up.
    Replay,
    /// One of the loads ends.
    Store {
        which: usize,
    },
    /// Time passes, so that the memory forgets.
    Wait,
    Reset,
    /// Another cache is built, in whatever state the feed is.
    Attach,
}

fn step() -> impl Strategy<Value = Step> {
    let touch = prop_oneof![
        4 => (0..KEYS).prop_map(Touch::Key),
        4 => (0..KEYS).prop_map(Touch::Tag),
        1 => Just(Touch::KeyPrefix),
        1 => Just(Touch::TagPrefix),
        1 => Just(Touch::Flush),
    ];
    prop_oneof![
        6 => touch.prop_map(Step::Begin),
        6 => (any::<usize>(), prop::bool::weighted(0.3)).prop_map(|(which, own)| Step::Commit { which, own }),
        6 => (1..4_usize).prop_map(|page| Step::Fetch { page }),
        1 => any::<usize>().prop_map(|which| Step::Repeat { which }),
        6 => (0..KEYS).prop_map(Step::Read),
        3 => (0..KEYS).prop_map(Step::ReadOld),
        1 => Just(Step::Reopen),
        4 => (0..KEYS, any::<bool>()).prop_map(|(key, place)| Step::ReadStandby { key, place }),
        2 => Just(Step::Replay),
        9 => any::<usize>().prop_map(|which| Step::Store { which }),
        3 => Just(Step::Wait),
        1 => Just(Step::Reset),
        1 => Just(Step::Attach),
    ]
}

type Seen = Arc<BTreeSet<u64>>;

/// What a transaction sees.
struct View {
    snapshot: Snapshot,
    seen: Seen,
}

/// A standby, as far as it has replayed.
struct Standby {
    view: View,
    lsn: u64,
}

struct Model {
    world: World,
    make: Make<Seen>,
    caches: Vec<Arc<dyn Kind<Seen>>>,
    /// Moves with each reset.
    life: u128,
    /// End of the WAL: it grows with each end of a transaction.
    lsn: u64,
    next: u64,
    open: BTreeMap<u64, Touch>,
    committed: BTreeMap<u64, Touch>,
    applied: BTreeSet<u64>,
    cursor: Snapshot,
    /// Target of a fetch whose pages are outstanding, and the place in the WAL that was read with it.
    target: Option<(Snapshot, u64)>,
    old: View,
    standby: Standby,
    /// What the pages so far have brought.
    paged: BTreeSet<u64>,
    loads: Vec<(usize, FillToken, Seen)>,
}

impl Model {
    fn new(make: Make<Seen>) -> Self {
        let world = World::new();
        let cursor: Snapshot = "100:100:".parse().unwrap();
        let nothing = || View {
            snapshot: cursor.clone(),
            seen: Seen::default(),
        };
        world.publish_at(Arc::new(cursor.clone()), 1, 1);
        Self {
            caches: vec![make(&world, CAPACITY)],
            make,
            life: 1,
            lsn: 1,
            old: nothing(),
            standby: Standby {
                view: nothing(),
                lsn: 1,
            },
            world,
            next: 100,
            open: BTreeMap::new(),
            committed: BTreeMap::new(),
            applied: BTreeSet::new(),
            cursor,
            target: None,
            paged: BTreeSet::new(),
            loads: Vec::new(),
        }
    }

    /// `pg_current_snapshot()`.
    fn now(&self) -> Snapshot {
        let xmin = self.open.keys().next().copied().unwrap_or(self.next);
        let open: Vec<_> = self.open.keys().copied().map(Xid).collect();
        Snapshot::new(Xid(xmin), Xid(self.next), open).unwrap()
    }

    /// What a statement on the primary sees now.
    fn view(&self) -> View {
        View {
            snapshot: self.now(),
            seen: Arc::new(self.committed.keys().copied().collect()),
        }
    }

    /// The same on a standby that has replayed everything. It knows of the ids up to the highest that has ended, and
    /// its snapshot lists nobody.
    fn replayed(&self) -> Standby {
        let xmax = self.committed.keys().last().map_or(100, |xid| xid + 1);
        let xmin = self.open.keys().next().map_or(xmax, |xid| xmax.min(*xid));
        let View { seen, .. } = self.view();
        let snapshot = Snapshot::new(Xid(xmin), Xid(xmax), []).unwrap();
        Standby {
            view: View { snapshot, seen },
            lsn: self.lsn,
        }
    }

    /// A load that has read in this view, marked so.
    fn load(&mut self, key: usize, mark: &str, seen: Seen) {
        let epoch = uuid::Uuid::from_u128(self.life);
        let mark: Mark = format!("1;1;2;3;{epoch};{mark}").parse().unwrap();
        if let Some(token) = self.world.position.token().and_then(|token| token.marked(&mark)) {
            self.loads.push((key, token, seen));
        }
    }

    fn apply(&mut self, xids: &[u64], origin: Origin) {
        let events: Vec<_> = xids
            .iter()
            .map(|xid| logged(*xid, event(self.committed[xid])))
            .collect();
        self.world.apply_all(&events, origin);
        self.applied.extend(xids);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Begin(touch) => {
                self.open.insert(self.next, touch);
                self.next += 1;
            }
            Step::Commit { which, own } => {
                let Some(xid) = nth(self.open.keys(), which) else {
                    return;
                };
                let touch = self.open.remove(&xid).unwrap();
                self.committed.insert(xid, touch);
                self.lsn += 1;
                if own {
                    self.apply(&[xid], Origin::Own);
                }
            }
            Step::Fetch { page } => {
                let (target, lsn) = self.target.take().unwrap_or_else(|| (self.now(), self.lsn));
                // What the feed itself has handed over is not fetched again; own events are.
                let new: Vec<u64> = self
                    .committed
                    .keys()
                    .copied()
                    .filter(|xid| !self.cursor.sees(Xid(*xid)) && target.sees(Xid(*xid)))
                    .filter(|xid| !self.paged.contains(xid))
                    .collect();
                let full = new.len() > page;
                let now = &new[..new.len().min(page)];
                self.apply(now, Origin::Feed);
                self.paged.extend(now);
                if full {
                    self.target = Some((target, lsn));
                } else {
                    self.paged.clear();
                    self.cursor = target.clone();
                    self.world.publish_at(Arc::new(target), self.life, lsn);
                }
            }
            Step::Repeat { which } => {
                if let Some(xid) = nth(self.applied.iter(), which) {
                    self.apply(&[xid], Origin::Feed);
                }
            }
            Step::Read(key) => {
                if let Some(token) = self.world.position.token() {
                    self.loads.push((key, token, self.view().seen));
                }
            }
            Step::ReadOld(key) => {
                let View { snapshot, seen } = &self.old;
                let (mark, seen) = (format!("primary;-;-;{snapshot}"), seen.clone());
                self.load(key, &mark, seen);
            }
            Step::Reopen => self.old = self.view(),
            Step::ReadStandby { key, place } => {
                let Standby { view, lsn } = &self.standby;
                let place = if place {
                    format!("0/{lsn:X}")
                } else {
                    "-".to_owned()
                };
                let mark = format!("standby;-;{place};{}", view.snapshot);
                let seen = view.seen.clone();
                self.load(key, &mark, seen);
            }
            Step::Replay => self.standby = self.replayed(),
            Step::Store { which } => {
                if self.loads.is_empty() {
                    return;
                }
                let (n, token, seen) = self.loads.swap_remove(which % self.loads.len());
                for cache in &self.caches {
                    let _: Stored = cache.store(&k(n), seen.clone(), &[t(n)], &token);
                }
            }
            Step::Wait => self.world.hands.advance(Duration::from_secs(61)),
            Step::Reset => {
                self.world.reset(Reset::Epoch);
                // The feed starts over at the head. Nothing older will come: the cache is empty.
                self.target = None;
                self.paged.clear();
                self.cursor = self.now();
                self.life += 1;
                self.old = self.view();
                self.standby = self.replayed();
                let seen: Vec<u64> = self.committed.keys().copied().collect();
                self.applied.extend(seen);
                let cursor = Arc::new(self.cursor.clone());
                self.world.publish_at(cursor, self.life, self.lsn);
            }
            Step::Attach => self.caches.push((self.make)(&self.world, CAPACITY)),
        }
    }

    /// No cache may serve what a read saw before a change that has been applied.
    fn check(&self) -> Result<(), TestCaseError> {
        for cache in &self.caches {
            for n in 0..KEYS {
                let Some(seen) = cache.get(&k(n)) else {
                    continue;
                };
                for xid in &self.applied {
                    let missed = touches(self.committed[xid], n) && !seen.contains(xid);
                    prop_assert!(!missed, "k{} does not know {}, which was applied", n, xid);
                }
            }
        }
        Ok(())
    }
}

fn k(n: usize) -> Key {
    key(&format!("key:{n}"))
}

fn t(n: usize) -> Tag {
    tag(&format!("tag:{n}"))
}

fn event(touch: Touch) -> Event {
    match touch {
        Touch::Key(n) => Event::default().key(k(n)),
        Touch::Tag(n) => Event::default().tag(t(n)),
        Touch::KeyPrefix => Event::default().prefix(prefix("key:")),
        Touch::TagPrefix => Event::default().prefix(prefix("tag:")),
        Touch::Flush => Event::flush(),
    }
}

fn touches(touch: Touch, n: usize) -> bool {
    match touch {
        Touch::Key(key) => key == n,
        Touch::Tag(tag) => tag == n,
        Touch::KeyPrefix | Touch::TagPrefix | Touch::Flush => true,
    }
}

fn nth<'a>(mut items: impl ExactSizeIterator<Item = &'a u64>, which: usize) -> Option<u64> {
    let count = items.len();
    (count > 0).then(|| *items.nth(which % count).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PGEVICT_MODEL_CASES").map_or(1_000, |text| text.parse().unwrap()),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_read_before_a_change_is_served_after_it_was_applied(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        for (kind, make) in kinds() {
            run(make, &steps).map_err(|error| TestCaseError::fail(format!("{kind}: {error}")))?;
        }
    }
}

fn run(make: Make<Seen>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut model = Model::new(make);
    for step in steps {
        model.take(step.clone());
        model.check()?;
    }
    // The index holds the tags of what is held, and nothing else.
    for cache in &model.caches {
        let held = (0..KEYS).filter(|n| cache.get(&k(*n)).is_some()).count();
        prop_assert!(cache.tags() >= held);
    }
    model
        .world
        .apply(model.next, Event::default().prefix(prefix("")), Origin::Feed);
    for cache in &model.caches {
        prop_assert_eq!((cache.entries(), cache.tags()), (0, 0));
    }
    Ok(())
}
