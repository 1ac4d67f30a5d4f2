//! Real threads: a writer that commits and applies, readers that load, a cache too small for its keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pgevict::cache::{Lookup, NearCache, Stored};
use pgevict::event::Event;
use pgevict::sink::Origin;

use crate::kinds::{Kind, kinds};
use crate::world::{Never, World, key, prefix, tag};

const KEYS: u64 = 64;

struct Database {
    /// Version of each row.
    rows: Vec<AtomicU64>,
    /// Version up to which the events of each row have been applied.
    applied: Vec<AtomicU64>,
    stop: AtomicBool,
}

fn write(world: &World, database: &Database) -> u64 {
    let mut changes = 0;
    let mut xid = 100;
    while !database.stop.load(Ordering::Relaxed) {
        let row = fastrand::u64(..KEYS);
        let event = match fastrand::u8(..40) {
            0 => Event::default().prefix(prefix("k")),
            1 => Event::default().prefix(prefix("t")),
            2 => Event::flush(),
            n if n % 2 == 0 => Event::default().tag(tag(&format!("t{row}"))),
            _ => Event::default().key(key(&format!("k{row}"))),
        };
        let version = database.rows[row as usize].fetch_add(1, Ordering::SeqCst) + 1;
        if fastrand::u8(..4) == 0 {
            world.apply(xid, event.clone(), Origin::Own);
            database.applied[row as usize].store(version, Ordering::SeqCst);
        }
        world.apply(xid, event, Origin::Feed);
        database.applied[row as usize].store(version, Ordering::SeqCst);
        xid += 1;
        world.publish(&format!("{xid}:{xid}:"));
        changes += 1;
        if changes % 64 == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    changes
}

async fn read(cache: NearCache<u64>, database: Arc<Database>) -> (u64, u64) {
    let (mut hits, mut loads) = (0, 0);
    while !database.stop.load(Ordering::Relaxed) {
        let n = fastrand::u64(..KEYS);
        let row = n as usize;
        let key = key(&format!("k{n}"));
        // What had been applied before the call is the oldest value that it may give.
        let floor = database.applied[row].load(Ordering::SeqCst);
        if let Lookup::Hit(version, _) = cache.get(&key) {
            assert!(
                version >= floor,
                "k{n}: hit of version {version}, but {floor} was applied"
            );
            hits += 1;
            continue;
        }
        let rows = database.clone();
        let answer = cache
            .get_or_load(&key, |load| async move {
                let version = rows.rows[row].load(Ordering::SeqCst);
                for _ in 0..fastrand::u8(..3) {
                    tokio::task::yield_now().await;
                }
                Ok::<_, Never>(load.found(version).tag(tag(&format!("t{n}"))))
            })
            .await
            .unwrap();
        let version = answer.unwrap();
        assert!(
            version >= floor,
            "k{n}: loaded version {version}, but {floor} was applied"
        );
        loads += 1;
        if loads % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    (hits, loads)
}

impl Database {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            applied: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
        })
    }
}

/// One writer and four readers, until the time is up or a reader fails; changes, hits and loads.
fn contend<F>(world: &World, database: &Arc<Database>, share: u64, reader: impl Fn() -> F)
where
    F: Future<Output = (u64, u64)> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let seconds: u64 = std::env::var("PGEVICT_STRESS_SECONDS").map_or(2, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds) / share as u32;
    let readers: Vec<_> = (0..4).map(|_| runtime.spawn(reader())).collect();
    let changes = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(world, database));
        while Instant::now() < end && readers.iter().all(|reader| !reader.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        database.stop.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    let (mut hits, mut loads) = (0, 0);
    for reader in readers {
        let (h, l) = runtime.block_on(reader).unwrap();
        (hits, loads) = (hits + h, loads + l);
    }
    println!("{changes} changes, {hits} hits, {loads} loads");
    assert!(changes > 100 && hits > 100 && loads > 100);
    world.apply(u64::MAX, Event::default().prefix(prefix("")), Origin::Feed);
}

#[test]
fn no_reader_ever_sees_a_value_from_before_an_applied_change() {
    let world = World::new();
    let cache = world.builder::<u64>().capacity(48).build();
    let database = Database::new();
    contend(&world, &database, 1, || read(cache.clone(), database.clone()));
    let stats = cache.stats();
    println!("{stats:?}");
    assert_eq!(
        (stats.entries, stats.tags, stats.loading),
        (0, 0, 0),
        "nothing is left behind"
    );
}

/// As [`read`], by token and store.
async fn read_by_token(world: Arc<World>, cache: Arc<dyn Kind<u64>>, database: Arc<Database>) -> (u64, u64) {
    let (mut hits, mut loads) = (0, 0);
    while !database.stop.load(Ordering::Relaxed) {
        let n = fastrand::u64(..KEYS);
        let key = key(&format!("k{n}"));
        let floor = database.applied[n as usize].load(Ordering::SeqCst);
        if let Some(version) = cache.get(&key) {
            assert!(
                version >= floor,
                "k{n}: hit of version {version}, but {floor} was applied"
            );
            hits += 1;
            continue;
        }
        let token = world.position.token().unwrap();
        let version = database.rows[n as usize].load(Ordering::SeqCst);
        for _ in 0..fastrand::u8(..3) {
            tokio::task::yield_now().await;
        }
        // The second tag comes and goes.
        let tags = [tag(&format!("t{n}")), tag(&format!("u{}", version % 3))];
        let _: Stored = cache.store(&key, version, &tags[..1 + fastrand::usize(..2)], &token);
        loads += 1;
        if loads % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    (hits, loads)
}

#[test]
fn in_no_kind_of_cache_a_reader_sees_a_value_from_before_an_applied_change() {
    for (kind, make) in kinds() {
        println!("{kind}");
        let world = Arc::new(World::new());
        let cache = make(&world, 48);
        let database = Database::new();
        contend(&world, &database, 2, || {
            read_by_token(world.clone(), cache.clone(), database.clone())
        });
        assert_eq!(
            (cache.entries(), cache.tags()),
            (0, 0),
            "{kind}: nothing is left behind"
        );
    }
}
