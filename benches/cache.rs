//! A hit of the near cache beside a bare `quick_cache` and `moka` (sync and future) in the same run, on one
//! thread and on two.
//!
//! Prints a table and writes `target/bench/cache.json`: rows of `{"system", "threads", "ns_per_get"}`. All
//! systems hold the same 10,000 keys and the same `Arc<str>` values, and are asked for the same keys in the
//! same random order; every get is a hit. `PGEVICT_BENCH_ROUND_MS` (default 400) is the length of one of the
//! five rounds, of which the median counts. Beside wall-clock time stands the CPU time of the threads, which a
//! busy machine disturbs less; "two clock reads" is the part of our hit that proves freshness.
#![allow(clippy::disallowed_methods, reason = "plain threads, no runtime")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::Criterion;
use futures::FutureExt;
use pgevict::cache::position::{Moment, Position};
use pgevict::cache::{NearCache, Shared, Stored};
use pgevict::config::Config;
use pgevict::event::{Key, Tag};
use pgevict::sink::Sinks;

const KEYS: usize = 10_000;
const ROUNDS: usize = 5;

type Value = Arc<str>;
type Get = Box<dyn Fn(&[Key]) + Send + Sync>;

/// A feed that stands still but keeps proving that it is up to date.
struct Feed {
    position: Arc<Position>,
    shared: Arc<Shared>,
}

impl Feed {
    fn start() -> Self {
        let position = Arc::new(Position::default());
        let sinks = Arc::new(Sinks::default());
        let shared = Shared::new(position.clone(), sinks.clone(), &Config::default());
        let cursor = Arc::new("100:100:".parse().expect("a snapshot"));
        position.publish(Arc::clone(&cursor), Moment::now());
        sinks.with(|sinks| sinks.iter().for_each(|sink| sink.published(&cursor)));
        Self { position, shared }
    }

    fn prove(&self) {
        let cursor = self.position.cursor().expect("it was published");
        self.position.publish(cursor, Moment::now());
    }
}

fn entries() -> Vec<(Key, Value)> {
    (0..KEYS)
        .map(|n| {
            let key = Key::new(format!("product:{n}")).expect("a key");
            (key, Value::from(format!("value of product {n}")))
        })
        .collect()
}

/// The systems, each as a function that gets all of these keys once.
fn systems(feed: &Feed, entries: &[(Key, Value)]) -> Vec<(&'static str, Get)> {
    let near = NearCache::<Value>::builder(feed.shared.clone())
        .capacity(2 * KEYS)
        .build();
    let token = near.token().expect("the feed has a cursor");
    let bare = quick_cache::sync::Cache::<Key, Value>::new(2 * KEYS);
    let moka_sync = moka::sync::Cache::<Key, Value>::new(2 * KEYS as u64);
    let moka_future = moka::future::Cache::<Key, Value>::new(2 * KEYS as u64);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    for (n, (key, value)) in entries.iter().enumerate() {
        let tag = Tag::new(format!("category:{}", n % 100)).expect("a tag");
        assert_eq!(near.store(key, Some(value.clone()), &[tag], &token), Stored::Kept);
        bare.insert(key.clone(), value.clone());
        moka_sync.insert(key.clone(), value.clone());
        runtime.block_on(moka_future.insert(key.clone(), value.clone()));
    }
    vec![
        (
            "quick_cache",
            Box::new(move |keys: &[Key]| {
                keys.iter()
                    .for_each(|key| drop(black_box(bare.get(key).expect("a hit"))))
            }) as Get,
        ),
        (
            "pgevict near cache",
            Box::new(move |keys: &[Key]| {
                keys.iter()
                    .for_each(|key| drop(black_box(near.get(key).into_value().expect("a hit"))));
            }),
        ),
        (
            "two clock reads",
            Box::new(|keys: &[Key]| {
                keys.iter().for_each(|_| {
                    black_box(Moment::now());
                })
            }),
        ),
        (
            "moka sync",
            Box::new(move |keys: &[Key]| {
                keys.iter()
                    .for_each(|key| drop(black_box(moka_sync.get(key).expect("a hit"))))
            }),
        ),
        (
            "moka future",
            Box::new(move |keys: &[Key]| {
                // A get never waits: it is ready when first polled, so no executor is part of the figure.
                for key in keys {
                    drop(black_box(
                        moka_future.get(key).now_or_never().flatten().expect("a hit"),
                    ));
                }
            }),
        ),
    ]
}

/// Nanoseconds that this thread has been running.
fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

/// Wall-clock and CPU nanoseconds of one thread per get, while `threads` threads do nothing else.
fn measure(get: &Get, keys: &[Key], threads: usize, length: Duration) -> [f64; 2] {
    let (stop, gets, spent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let cpu = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for n in 0..threads {
            let (stop, gets, spent, cpu) = (&stop, &gets, &spent, &cpu);
            scope.spawn(move || {
                // Each thread starts elsewhere in the common order.
                let mut keys = keys.to_vec();
                keys.rotate_left(n * KEYS / threads);
                let (started, cpu_before) = (Instant::now(), cpu_nanos());
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    get(&keys);
                    done += keys.len() as u64;
                }
                spent.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
                cpu.fetch_add(cpu_nanos() - cpu_before, Ordering::Relaxed);
                gets.fetch_add(done, Ordering::Relaxed);
            });
        }
        std::thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
    });
    let gets = gets.into_inner() as f64;
    [spent.into_inner() as f64 / gets, cpu.into_inner() as f64 / gets]
}

fn table(feed: &Feed, systems: &[(&'static str, Get)], keys: &[Key]) {
    let millis =
        std::env::var("PGEVICT_BENCH_ROUND_MS").map_or(400, |text| text.parse().expect("milliseconds"));
    let length = Duration::from_millis(millis);
    let mut rows = Vec::new();
    println!(
        "{:<20} {:>8} {:>12} {:>12}",
        "system", "threads", "ns per get", "CPU ns"
    );
    for threads in [1, 2] {
        let mut rounds = vec![Vec::new(); systems.len()];
        // Round by round through all systems, so that a busy moment of the machine meets them alike.
        for _ in 0..ROUNDS {
            for ((_, get), measured) in systems.iter().zip(&mut rounds) {
                feed.prove();
                measured.push(measure(get, keys, threads, length));
            }
        }
        for ((system, _), mut measured) in systems.iter().zip(rounds) {
            let [wall, cpu] = [0, 1].map(|clock| {
                measured.sort_by(|a, b| a[clock].total_cmp(&b[clock]));
                measured[ROUNDS / 2][clock]
            });
            println!("{system:<20} {threads:>8} {wall:>12.1} {cpu:>12.1}");
            rows.push(serde_json::json!({
                "system": system, "threads": threads, "ns_per_get": wall, "cpu_ns_per_get": cpu,
            }));
        }
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let directory = std::path::Path::new(&target).join("bench");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    let json = serde_json::to_string_pretty(&rows).expect("rows are plain values");
    std::fs::write(directory.join("cache.json"), json).expect("the target directory can be written");
}

fn main() {
    let feed = Feed::start();
    let entries = entries();
    let mut keys: Vec<Key> = entries.iter().map(|(key, _)| key.clone()).collect();
    fastrand::seed(7);
    fastrand::shuffle(&mut keys);
    let systems = systems(&feed, &entries);
    // `cargo test --benches` only wants to know that it runs.
    if !std::env::args().any(|argument| argument == "--bench") {
        systems.iter().for_each(|(_, get)| get(&keys));
        return;
    }
    table(&feed, &systems, &keys);

    // The same on one key, with criterion's statistics.
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for (system, get) in &systems {
        feed.prove();
        criterion.bench_function(&format!("hit on one key/{system}"), |bench| {
            bench.iter(|| get(black_box(&keys[..1])));
        });
    }
    criterion.final_summary();
}
