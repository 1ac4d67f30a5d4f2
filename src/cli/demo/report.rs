//! What the demo prints: a line a second, and the summary.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::faults::Faults;
use super::shop::Shop;
use super::stage::{INSTANCES, name};
use super::truth::{Applied, Reads};

/// Prints a line; nobody listening is no reason to fail.
pub(super) fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// Percentiles in milliseconds.
struct Latencies {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Latencies {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1_000.0);
        let at = |share: f64| {
            ms(times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))))
        };
        Self {
            p50: at(0.50),
            p99: at(0.99),
            max: ms(times.last()),
        }
    }
}

/// Prints a line a second until stopped.
pub(super) async fn every_second(shop: Arc<Shop>, stop: CancellationToken) {
    let start = Instant::now();
    let mut printed = 0;
    let mut second = 0;
    loop {
        second += 1;
        tokio::select! {
            () = tokio::time::sleep_until((start + Duration::from_secs(second)).into()) => {}
            () = stop.cancelled() => return,
        }
        let applied = shop.truth.applications(printed);
        printed += applied.len();
        let columns: Vec<_> = (0..INSTANCES)
            .map(|instance| {
                let of_instance = applied.iter().filter(|applied| applied.instance == instance);
                let latencies = Latencies::of(of_instance.map(|applied| applied.at - applied.sent).collect());
                format!(
                    "{} {:.1}/{:.1}/{:.1}",
                    name(instance),
                    latencies.p50,
                    latencies.p99,
                    latencies.max
                )
            })
            .collect();
        let reconnects: u64 = shop
            .servers
            .iter()
            .map(|server| server.pgevict.status().reconnects_total())
            .sum();
        let reads = shop.truth.reads();
        say(&format!(
            "{second:>4}s  events {:>6}  p50/p99/max ms: {}  hits {:>7}  stale reads {}  reconnects {reconnects}",
            shop.truth.events(),
            columns.join("  "),
            reads.hits,
            reads.stale,
        ));
    }
}

/// The summary.
pub(super) struct Report {
    events: u64,
    outside: Latencies,
    max: f64,
    reads: Reads,
    lost: u64,
    faults: usize,
    measured: usize,
}

impl Report {
    pub(super) fn new(shop: &Shop, faults: &Faults) -> Self {
        let windows = faults.windows();
        let applied = shop.truth.applications(0);
        let time = |applied: &Applied| applied.at - applied.sent;
        let outside: Vec<_> = applied
            .iter()
            .filter(|applied| {
                !windows
                    .iter()
                    .any(|window| window.touches(applied.sent, applied.at))
            })
            .map(time)
            .collect();
        Self {
            events: shop.truth.events(),
            measured: outside.len(),
            outside: Latencies::of(outside),
            max: Latencies::of(applied.iter().map(time).collect()).max,
            reads: shop.truth.reads(),
            lost: shop.truth.missing(Instant::now()),
            faults: windows.len(),
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.reads.stale == 0 && self.lost == 0
    }

    pub(super) fn print(&self, json: bool) {
        let max_stale = self.reads.max_stale.as_secs_f64() * 1_000.0;
        say("");
        say(&format!("events committed         {}", self.events));
        say(&format!(
            "commit -> applied        p50 {:.2} ms, p99 {:.2} ms ({} outside faults); max {:.0} ms over all",
            self.outside.p50, self.outside.p99, self.measured, self.max
        ));
        say(&format!(
            "hits checked             {}, oldest value served as fresh {max_stale:.0} ms after it was replaced",
            self.reads.hits
        ));
        say(&format!("stale reads              {}", self.reads.stale));
        say(&format!("events lost              {}", self.lost));
        say(&format!("faults survived          {}", self.faults));
        if json {
            let round = |ms: f64| (ms * 1_000.0).round() / 1_000.0;
            say(&json!({
                "events": self.events,
                "instances": INSTANCES,
                "p50_ms": round(self.outside.p50),
                "p99_ms": round(self.outside.p99),
                "max_ms": round(self.max),
                "max_stale_ms": round(max_stale),
                "hits": self.reads.hits,
                "stale_reads": self.reads.stale,
                "lost": self.lost,
                "faults": self.faults,
            })
            .to_string());
        }
    }
}
