//! The table and the file.

use std::path::PathBuf;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::ledger::Ledger;

/// Instances that listen.
const INSTANCES: u32 = 1;
/// p50 of pgevict over p50 of the floor that is promised.
const BAR: f64 = 2.0;

/// The latencies of one system.
pub(crate) struct Latencies {
    system: &'static str,
    nanos: Histogram<u64>,
    lost: u64,
}

impl Latencies {
    /// All events after the first `warm_up`.
    pub(crate) fn of(system: &'static str, ledger: &Ledger, warm_up: usize) -> Self {
        let mut nanos = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are allowed");
        let mut lost = 0;
        for latency in ledger.latencies(warm_up) {
            match latency {
                Some(latency) => nanos.saturating_record(latency.as_nanos() as u64),
                None => lost += 1,
            }
        }
        Self { system, nanos, lost }
    }

    /// Milliseconds at this quantile.
    fn at(&self, quantile: f64) -> f64 {
        self.nanos.value_at_quantile(quantile) as f64 / 1e6
    }

    fn max(&self) -> f64 {
        self.nanos.max() as f64 / 1e6
    }

    fn row(&self, rate: u32) -> Value {
        let round = |ms: f64| (ms * 1e4).round() / 1e4;
        json!({
            "system": self.system,
            "instances": INSTANCES,
            "rate": rate,
            "p50_ms": round(self.at(0.5)),
            "p99_ms": round(self.at(0.99)),
            "p999_ms": round(self.at(0.999)),
            "max_ms": round(self.max()),
            "events": self.nanos.len(),
            "lost": self.lost,
        })
    }
}

/// Prints the table, floor first, and writes the file.
pub(crate) fn report(rows: &[Latencies; 2], rate: u32) -> Result<()> {
    println!("COMMIT sent -> entry gone (pgevict) or notification read (floor), {rate} events/s each");
    println!(
        "{:<8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>5}",
        "system", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "events", "lost"
    );
    for row in rows {
        println!(
            "{:<8} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>8} {:>5}",
            row.system,
            row.at(0.5),
            row.at(0.99),
            row.at(0.999),
            row.max(),
            row.nanos.len(),
            row.lost
        );
    }
    let [floor, pgevict] = rows;
    println!(
        "p50: pgevict adds {:.3} ms, {:.2} x floor (promised: at most {BAR} x)",
        pgevict.at(0.5) - floor.at(0.5),
        pgevict.at(0.5) / floor.at(0.5)
    );

    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let directory = target.join("bench");
    let file = directory.join("latency.json");
    let rows: Vec<_> = rows.iter().map(|row| row.row(rate)).collect();
    std::fs::create_dir_all(&directory)
        .and_then(|()| std::fs::write(&file, format!("{:#}\n", Value::from(rows))))
        .with_context(|| format!("writing {}", file.display()))
}
