//! A model of the log: transactions that interleave at random, and one reader that pages through what they commit.
//!
//! As in PostgreSQL a transaction gets its id at its first write, savepoints take ids of their own that no
//! snapshot lists, a snapshot ends behind the last id that finished, and event ids are taken at insert.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Cursor, Place, Snapshot, Xid};

#[derive(Debug, Clone)]
enum Step {
    Begin,
    Emit {
        tx: usize,
        events: usize,
    },
    Savepoint(usize),
    RollbackToSavepoint(usize),
    Release(usize),
    Commit(usize),
    Rollback(usize),
    Prepare(usize),
    CommitPrepared(usize),
    RollbackPrepared(usize),
    /// One page of a fetch.
    Fetch {
        limit: usize,
    },
    /// A page was read, but the reader died before it handled it.
    FetchLost {
        limit: usize,
    },
    /// The reader starts again from its stored cursor.
    Restart,
    /// Pages until the cursor holds no target any more.
    FetchAll {
        limit: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let tx = 0..8_usize;
    let limit = 1..=5_usize;
    prop_oneof![
        4 => Just(Step::Begin),
        8 => (tx.clone(), 1..4_usize).prop_map(|(tx, events)| Step::Emit { tx, events }),
        2 => tx.clone().prop_map(Step::Savepoint),
        2 => tx.clone().prop_map(Step::RollbackToSavepoint),
        1 => tx.clone().prop_map(Step::Release),
        4 => tx.clone().prop_map(Step::Commit),
        2 => tx.clone().prop_map(Step::Rollback),
        1 => tx.clone().prop_map(Step::Prepare),
        1 => tx.clone().prop_map(Step::CommitPrepared),
        1 => tx.prop_map(Step::RollbackPrepared),
        6 => limit.clone().prop_map(|limit| Step::Fetch { limit }),
        1 => limit.clone().prop_map(|limit| Step::FetchLost { limit }),
        2 => Just(Step::Restart),
        2 => limit.prop_map(|limit| Step::FetchAll { limit }),
    ]
}

#[derive(Debug, Default)]
struct Transaction {
    xid: Option<Xid>,
    events: Vec<i64>,
    /// Length of `events` at each open savepoint, and whether it has an id yet.
    savepoints: Vec<(usize, bool)>,
}

struct World {
    next_xid: u64,
    next_id: i64,
    latest_finished: u64,
    open: Vec<Transaction>,
    prepared: Vec<Transaction>,
    /// Rows of committed transactions; how often each was delivered.
    log: BTreeMap<Place, usize>,
    seen: Snapshot,
    cursor: Cursor,
    limit: usize,
}

impl World {
    fn new() -> Self {
        let start: Snapshot = "3:3:".parse().unwrap();
        Self {
            next_xid: 3,
            next_id: 1,
            latest_finished: 2,
            open: Vec::new(),
            prepared: Vec::new(),
            log: BTreeMap::new(),
            seen: start.clone(),
            cursor: Cursor::new(start),
            limit: 1,
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let xmax = self.latest_finished + 1;
        let transactions = self.open.iter().chain(&self.prepared);
        let mut running: Vec<Xid> = transactions
            .filter_map(|tx| tx.xid)
            .filter(|xid| xid.0 < xmax)
            .collect();
        running.sort();
        let xmin = running.first().map_or(Xid(xmax), |xid| *xid);
        let now = Snapshot::new(xmin, Xid(xmax), running).unwrap();
        assert!(now.covers(&self.seen), "{now} forgot what {} saw", self.seen);
        self.seen = now.clone();
        now
    }

    fn new_xid(&mut self) -> u64 {
        self.next_xid += 1;
        self.next_xid - 1
    }

    fn emit(&mut self, tx: usize, events: usize) {
        if self.open[tx].xid.is_none() {
            self.open[tx].xid = Some(Xid(self.new_xid()));
        }
        for level in 0..self.open[tx].savepoints.len() {
            if !std::mem::replace(&mut self.open[tx].savepoints[level].1, true) {
                self.new_xid();
            }
        }
        for _ in 0..events {
            self.open[tx].events.push(self.next_id);
            self.next_id += 1;
        }
    }

    fn finish(&mut self, tx: Transaction, commit: bool) {
        let Some(xid) = tx.xid else { return };
        // Savepoint ids finish with their transaction; the highest id given out is the boldest choice.
        self.latest_finished = self.latest_finished.max(xid.0);
        if commit {
            self.log.extend(tx.events.into_iter().map(|id| ((xid, id), 0)));
        }
    }

    /// The fetch by its definition and by its two arms; they must agree. Rows in order, and the snapshot.
    fn read(&mut self, limit: usize) -> (Vec<Place>, Snapshot) {
        let now = self.snapshot();
        let visible: Vec<Place> = self
            .log
            .keys()
            .copied()
            .filter(|(xid, _)| now.sees(*xid))
            .collect();
        assert_eq!(visible.len(), self.log.len(), "what is committed is visible");
        let wanted = visible
            .iter()
            .copied()
            .filter(|(xid, id)| self.cursor.wants(*xid, *id, &now));
        let wanted: Vec<Place> = wanted.take(limit).collect();

        let bounds = self.cursor.bounds();
        let upper = bounds.target.unwrap_or(&now);
        let below = |place: &Place| place.0 < upper.xmax() && !upper.in_progress().contains(&place.0);
        let arm = |first: &dyn Fn(Place) -> bool| -> Vec<Place> {
            let rows = visible
                .iter()
                .copied()
                .filter(|place| first(*place) && below(place));
            rows.take(limit).collect()
        };
        let mut merged = arm(&|place| place > bounds.from);
        merged.extend(arm(&|place| {
            bounds.base_in_progress.contains(&place.0) && place > bounds.after
        }));
        merged.sort();
        merged.truncate(limit);
        assert_eq!(merged, wanted, "the two arms return what the definition wants");
        (wanted, now)
    }

    fn fetch(&mut self, limit: usize) {
        let (rows, now) = self.read(limit);
        for place in &rows {
            *self.log.get_mut(place).unwrap() += 1;
            assert_eq!(self.log[place], 1, "{place:?} is delivered once");
        }
        let cursor = self.cursor.clone();
        self.cursor = cursor.after_fetch(now, rows.last().copied(), rows.len() == limit);
    }

    /// A complete fetch: what was committed before it began has arrived at its end, whoever else is open.
    fn fetch_all(&mut self, limit: usize) {
        while self.cursor.page().is_some() {
            self.fetch(limit);
        }
        let committed: Vec<Place> = self.log.keys().copied().collect();
        self.fetch(limit);
        let mut pages = 1;
        while self.cursor.page().is_some() {
            self.fetch(limit);
            pages += 1;
        }
        assert!(
            committed.iter().all(|place| self.log[place] == 1),
            "all that was committed arrives"
        );
        assert!(
            pages <= committed.len() / limit + 1,
            "{pages} pages for {} events",
            committed.len()
        );
    }

    fn restart(&mut self) {
        let stored = |snapshot: &Snapshot| snapshot.to_string().parse::<Snapshot>().unwrap();
        let base = stored(self.cursor.base());
        self.cursor = match self.cursor.page() {
            None => Cursor::new(base),
            Some((target, after)) => Cursor::between_pages(base, stored(target), after).unwrap(),
        };
    }

    fn run(&mut self, step: Step) {
        let open = |tx: usize, world: &World| (!world.open.is_empty()).then(|| tx % world.open.len().max(1));
        let prepared =
            |tx: usize, world: &World| (!world.prepared.is_empty()).then(|| tx % world.prepared.len().max(1));
        match step {
            Step::Begin => self.open.push(Transaction::default()),
            Step::Emit { tx, events } => {
                if let Some(tx) = open(tx, self) {
                    self.emit(tx, events);
                }
            }
            Step::Savepoint(tx) => {
                if let Some(tx) = open(tx, self) {
                    let events = self.open[tx].events.len();
                    self.open[tx].savepoints.push((events, false));
                }
            }
            Step::RollbackToSavepoint(tx) => {
                if let Some((tx, (events, had_id))) =
                    open(tx, self).and_then(|tx| self.open[tx].savepoints.pop().map(|point| (tx, point)))
                {
                    self.open[tx].events.truncate(events);
                    if had_id {
                        // An aborted savepoint's id moves the end of snapshots past its running parent.
                        self.latest_finished = self.latest_finished.max(self.next_xid - 1);
                    }
                }
            }
            Step::Release(tx) => {
                if let Some(tx) = open(tx, self) {
                    self.open[tx].savepoints.pop();
                }
            }
            Step::Commit(tx) | Step::Rollback(tx) => {
                if let Some(tx) = open(tx, self) {
                    let tx = self.open.swap_remove(tx);
                    self.finish(tx, matches!(step, Step::Commit(_)));
                }
            }
            Step::Prepare(tx) => {
                if let Some(tx) = open(tx, self) {
                    let tx = self.open.swap_remove(tx);
                    self.prepared.push(tx);
                }
            }
            Step::CommitPrepared(tx) | Step::RollbackPrepared(tx) => {
                if let Some(tx) = prepared(tx, self) {
                    let tx = self.prepared.swap_remove(tx);
                    self.finish(tx, matches!(step, Step::CommitPrepared(_)));
                }
            }
            Step::Fetch { limit } => self.fetch(limit),
            Step::FetchLost { limit } => drop(self.read(limit)),
            Step::Restart => self.restart(),
            Step::FetchAll { limit } => {
                self.limit = limit;
                self.fetch_all(limit);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Each committed event is delivered exactly once, nothing else is, and nothing waits on an open transaction.
    #[test]
    fn each_committed_event_is_delivered_exactly_once(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        // Open transactions stay open: they must hold nothing back.
        world.fetch_all(world.limit);
        prop_assert!(world.log.values().all(|deliveries| *deliveries == 1));
        // What was open finishes late, and arrives late.
        while let Some(tx) = world.open.pop().or_else(|| world.prepared.pop()) {
            world.finish(tx, true);
        }
        world.fetch_all(world.limit);
        prop_assert!(world.log.values().all(|deliveries| *deliveries == 1));
    }
}
