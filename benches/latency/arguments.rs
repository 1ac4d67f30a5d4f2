//! What the command line says.

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arguments {
    /// How long is measured.
    pub(crate) lasts: Duration,
    /// Events a second and system.
    pub(crate) rate: u32,
    pub(crate) flush: Flush,
}

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// The disk.
    Wait,
    /// Nothing.
    Skip,
}

impl Arguments {
    /// `None` when a filter (a bare word, as `cargo bench` hands it to every bench) means another bench.
    pub(crate) fn parse(mut given: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let (mut seconds, mut rate, mut flush, mut measure) = (20, 200, Flush::Wait, false);
        while let Some(argument) = given.next() {
            let mut number = || -> Result<u32> {
                let text = given
                    .next()
                    .with_context(|| format!("{argument}: a number is missing"))?;
                let number = text.parse().ok().filter(|number| *number > 0);
                number.with_context(|| format!("{argument}: {text:?} is not a number above 0"))
            };
            match argument.as_str() {
                "--seconds" => (seconds, measure) = (number()?, true),
                "--rate" => (rate, measure) = (number()?, true),
                "--no-flush" => flush = Flush::Skip,
                "--bench" => measure = true,
                flag if flag.starts_with('-') => bail!("{flag}: known are --seconds N, --rate N, --no-flush"),
                filter if "latency".contains(filter) => {}
                _ => return Ok(None),
            }
        }
        if !measure {
            // `cargo test --benches` only wants to know that it runs.
            seconds = 1;
        }
        Ok(Some(Self {
            lasts: Duration::from_secs(seconds.into()),
            rate,
            flush,
        }))
    }
}
