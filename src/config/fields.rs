//! The table of settings: each with its key, its place in the tree and its extremes.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::{Config, WhenStale};

/// One setting.
pub(super) struct Field {
    /// Path in the file, such as `cache.ttl`.
    pub(super) key: &'static str,
    pub(super) slot: fn(&mut Config) -> Slot<'_>,
    pub(super) extremes: Extremes,
}

/// Where a setting is kept.
pub(super) enum Slot<'a> {
    Switch(&'a mut bool),
    Text(&'a mut Option<String>),
    File(&'a mut Option<PathBuf>),
    /// Never printed.
    Secret(&'a mut Option<SecretString>),
    Time(&'a mut Duration),
    Count(Count<'a>),
    WhenStale(&'a mut WhenStale),
}

pub(super) enum Count<'a> {
    Small(&'a mut u32),
    Large(&'a mut usize),
}

impl Count<'_> {
    pub(super) fn get(&self) -> u64 {
        match self {
            Self::Small(count) => u64::from(**count),
            Self::Large(count) => **count as u64,
        }
    }

    /// False when it does not fit, which is far beyond the extremes.
    pub(super) fn set(&mut self, value: u64) -> bool {
        match self {
            Self::Small(count) => u32::try_from(value).map(|value| **count = value).is_ok(),
            Self::Large(count) => usize::try_from(value).map(|value| **count = value).is_ok(),
        }
    }
}

/// Least and most, both allowed.
#[derive(Clone, Copy)]
pub(super) enum Extremes {
    None,
    Time(Duration, Duration),
    Count(u64, u64),
}

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const MIN: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

const fn time(
    key: &'static str,
    least: Duration,
    most: Duration,
    slot: fn(&mut Config) -> Slot<'_>,
) -> Field {
    Field {
        key,
        slot,
        extremes: Extremes::Time(least, most),
    }
}

const fn count(key: &'static str, least: u64, most: u64, slot: fn(&mut Config) -> Slot<'_>) -> Field {
    Field {
        key,
        slot,
        extremes: Extremes::Count(least, most),
    }
}

const fn plain(key: &'static str, slot: fn(&mut Config) -> Slot<'_>) -> Field {
    Field {
        key,
        slot,
        extremes: Extremes::None,
    }
}

const fn times(unit: Duration, n: u32) -> Duration {
    match unit.checked_mul(n) {
        Some(time) => time,
        None => Duration::MAX,
    }
}

/// Every setting, in the order of `config.toml`.
pub(super) const FIELDS: &[Field] = &[
    plain("url", |c| Slot::Secret(&mut c.url)),
    plain("listen_url", |c| Slot::Secret(&mut c.listen_url)),
    plain("password_file", |c| Slot::File(&mut c.password_file)),
    plain("instance_id", |c| Slot::Text(&mut c.instance_id)),
    plain("enabled", |c| Slot::Switch(&mut c.enabled)),
    time("max_staleness", times(MS, 20), HOUR, |c| {
        Slot::Time(&mut c.max_staleness)
    }),
    time("session.connect_timeout", times(MS, 10), times(MIN, 5), |c| {
        Slot::Time(&mut c.session.connect_timeout)
    }),
    time("session.statement_timeout", times(MS, 10), times(MIN, 5), |c| {
        Slot::Time(&mut c.session.statement_timeout)
    }),
    time("session.lock_limit", times(MS, 100), HOUR, |c| {
        Slot::Time(&mut c.session.lock_limit)
    }),
    time("session.backoff_min", MS, MIN, |c| {
        Slot::Time(&mut c.session.backoff_min)
    }),
    time("session.backoff_max", MS, times(MIN, 10), |c| {
        Slot::Time(&mut c.session.backoff_max)
    }),
    plain("wake.listen", |c| Slot::Switch(&mut c.wake.listen)),
    time("wake.probe_interval", times(MS, 10), HOUR, |c| {
        Slot::Time(&mut c.wake.probe_interval)
    }),
    time("wake.probe_timeout", times(MS, 10), MIN, |c| {
        Slot::Time(&mut c.wake.probe_timeout)
    }),
    time("feed.poll", times(MS, 10), MIN, |c| Slot::Time(&mut c.feed.poll)),
    time("feed.poll_unproved", times(MS, 10), MIN, |c| {
        Slot::Time(&mut c.feed.poll_unproved)
    }),
    count("feed.page_min", 1, 100_000, |c| {
        Slot::Count(Count::Small(&mut c.feed.page_min))
    }),
    count("feed.page_max", 1, 100_000, |c| {
        Slot::Count(Count::Small(&mut c.feed.page_max))
    }),
    time("feed.heartbeat", times(MS, 100), times(S, 20), |c| {
        Slot::Time(&mut c.feed.heartbeat)
    }),
    time("feed.sync_timeout", times(MS, 100), HOUR, |c| {
        Slot::Time(&mut c.feed.sync_timeout)
    }),
    plain("warden.enabled", |c| Slot::Switch(&mut c.warden.enabled)),
    time("warden.claim", times(MS, 100), MIN, |c| {
        Slot::Time(&mut c.warden.claim)
    }),
    time("warden.chores", times(MS, 100), HOUR, |c| {
        Slot::Time(&mut c.warden.chores)
    }),
    time("warden.check_interval", times(MS, 100), HOUR, |c| {
        Slot::Time(&mut c.warden.check_interval)
    }),
    time("warden.retention", S, times(DAY, 30), |c| {
        Slot::Time(&mut c.warden.retention)
    }),
    time("warden.retention_max", S, times(DAY, 30), |c| {
        Slot::Time(&mut c.warden.retention_max)
    }),
    time("emit.window", MS, times(S, 10), |c| {
        Slot::Time(&mut c.emit.window)
    }),
    count("emit.bound", 1, 1_000_000, |c| {
        Slot::Count(Count::Large(&mut c.emit.bound))
    }),
    time("cache.ttl", MS, times(DAY, 30), |c| Slot::Time(&mut c.cache.ttl)),
    count("cache.capacity", 1, 1_000_000_000, |c| {
        Slot::Count(Count::Large(&mut c.cache.capacity))
    }),
    plain("cache.when_stale", |c| Slot::WhenStale(&mut c.cache.when_stale)),
    time("cache.load_timeout", times(MS, 10), HOUR, |c| {
        Slot::Time(&mut c.cache.load_timeout)
    }),
    count("cache.max_loads", 1, 100_000, |c| {
        Slot::Count(Count::Large(&mut c.cache.max_loads))
    }),
];

/// The setting of this key.
pub(super) fn find(key: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.key == key)
}
