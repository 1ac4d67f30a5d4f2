//! Settings: one tree with defaults; loaded from file, environment and flags; every problem reported at once.
//!
//! Unit, default and extremes of each are in `config.toml` at the root of the repository. [`Config::load`] reads
//! what an operator wrote. A program may also fill the fields itself, or read them as part of its own settings,
//! and then calls [`Config::check`].

use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::error::{Error, Result};

mod address;
mod check;
mod fields;
mod load;
mod nearest;

pub use address::Address;
#[cfg(feature = "tls")]
pub(crate) use address::Roots;
pub(crate) use address::{Mode, Password, Server, Tls};

/// Every setting of one instance.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Address for emitting and administration; may be a pooler. A libpq URL or `key=value` string.
    pub url: Option<SecretString>,
    /// Direct address (no pooler) for the LISTEN, fetch and warden sessions. Default: `url`.
    pub listen_url: Option<SecretString>,
    /// File that holds the password of both addresses, alone; read at every connect, so that it can be changed.
    pub password_file: Option<PathBuf>,
    /// Name of this instance. Default: random per process.
    pub instance_id: Option<String>,
    /// `false`: nothing listens, caches bypass, Rust emits are no-ops that say so.
    pub enabled: bool,
    /// Oldest proof of freshness with which a hit counts as fresh. At least 2 polls.
    #[serde(with = "humantime_serde")]
    pub max_staleness: Duration,
    /// The sessions.
    pub session: SessionConfig,
    /// The LISTEN connection.
    pub wake: WakeConfig,
    /// The feed.
    pub feed: FeedConfig,
    /// The chores of the elected instance.
    pub warden: WardenConfig,
    /// Emitting outside of a transaction.
    pub emit: EmitConfig,
    /// Defaults of near caches.
    pub cache: CacheConfig,
}

/// How sessions are opened and bounded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SessionConfig {
    /// Deadline for opening a session, from looking up the host to the first answer; several hosts share it.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// Deadline of every statement, on the client's side.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
    /// How long watching, unwatching and uninstalling try for the lock on a table of the user's.
    #[serde(with = "humantime_serde")]
    pub lock_limit: Duration,
    /// First pause before connecting again; doubles up to `backoff_max`, with half jitter.
    #[serde(with = "humantime_serde")]
    pub backoff_min: Duration,
    /// Longest pause before connecting again.
    #[serde(with = "humantime_serde")]
    pub backoff_max: Duration,
}

/// How wakes are heard.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WakeConfig {
    /// `false`: nothing listens, events arrive by polling every [`FeedConfig::poll`], and this instance never becomes the
    /// warden. For where every address leads through a pooler.
    pub listen: bool,
    /// A LISTEN session that heard nothing for this long is probed.
    #[serde(with = "humantime_serde")]
    pub probe_interval: Duration,
    /// A probe unanswered for this long after its commit means that the session is lost.
    #[serde(with = "humantime_serde")]
    pub probe_timeout: Duration,
}

/// How the feed polls, pages and proves its life.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FeedConfig {
    /// Pause between fetches while the LISTEN path is proved.
    #[serde(with = "humantime_serde")]
    pub poll: Duration,
    /// Pause between fetches while it is not.
    #[serde(with = "humantime_serde")]
    pub poll_unproved: Duration,
    /// Events of the first page of a catch-up.
    pub page_min: u32,
    /// Events of a page once pages come full.
    pub page_max: u32,
    /// Pause between heartbeats.
    #[serde(with = "humantime_serde")]
    pub heartbeat: Duration,
    /// Deadline for becoming ready at start.
    #[serde(with = "humantime_serde")]
    pub sync_timeout: Duration,
}

/// How the log is kept short and the watches are checked: one elected instance does it for all.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WardenConfig {
    /// `false`: this instance never becomes the warden.
    pub enabled: bool,
    /// Pause between claims of the office; the lease is three times as long.
    #[serde(with = "humantime_serde")]
    pub claim: Duration,
    /// Pause between the chores: noting how far the log is, pruning, dropping dead heartbeats.
    #[serde(with = "humantime_serde")]
    pub chores: Duration,
    /// Pause between two checks of the watches: how long a change may pass untold that no trigger sees.
    #[serde(with = "humantime_serde")]
    pub check_interval: Duration,
    /// How long an event is kept at least.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
    /// How long positions are kept from which pruning picks one that is old enough and passed by every live instance.
    #[serde(with = "humantime_serde")]
    pub retention_max: Duration,
}

/// How events that were enqueued are gathered and written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct EmitConfig {
    /// How long events are gathered, from the first, before they are written in one transaction.
    #[serde(with = "humantime_serde")]
    pub window: Duration,
    /// Most events that wait to be written; one more is an error to its caller.
    pub bound: usize,
}

/// What a near cache does unless its builder says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct CacheConfig {
    /// Longest life of an entry.
    #[serde(with = "humantime_serde")]
    pub ttl: Duration,
    /// Most entries of one cache.
    pub capacity: usize,
    /// What a hit that cannot be proved fresh does.
    pub when_stale: WhenStale,
    /// Deadline of one load.
    #[serde(with = "humantime_serde")]
    pub load_timeout: Duration,
    /// Most loads at once per instance.
    pub max_loads: usize,
}

/// What a hit does when `as_of` is older than `max_staleness`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenStale {
    /// It counts as a miss.
    Bypass,
    /// It is served and flagged stale.
    Serve,
    /// It is an error.
    Fail,
}

impl Config {
    /// Every default, with this address.
    ///
    /// # Errors
    /// Invalid when the address cannot be read: see [`Address::parse`].
    pub fn from_url(url: impl Into<String>) -> Result<Self> {
        let url = SecretString::from(url.into());
        Address::parse(url.expose_secret())?;
        Ok(Self {
            url: Some(url),
            ..Self::default()
        })
    }

    /// Where to emit and administer.
    ///
    /// # Errors
    /// Invalid when `url` is not set or cannot be read.
    pub fn address(&self) -> Result<Address> {
        let url = self.url.as_ref().ok_or_else(|| {
            Error::invalid("no address is set: set `url`, --url, PGEVICT_URL or DATABASE_URL, such as postgresql://user@host/dbname")
        })?;
        self.read(url)
    }

    /// Where to listen and fetch: `listen_url`, or `url` when that is not set.
    ///
    /// # Errors
    /// Invalid when neither is set, or the one that counts cannot be read.
    pub fn listen_address(&self) -> Result<Address> {
        match &self.listen_url {
            Some(url) => self.read(url),
            None => self.address(),
        }
    }

    fn read(&self, url: &SecretString) -> Result<Address> {
        let address = Address::parse(url.expose_secret())?;
        Ok(address.with_password_file(self.password_file.clone()))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: None,
            listen_url: None,
            password_file: None,
            instance_id: None,
            enabled: true,
            max_staleness: Duration::from_secs(5),
            session: SessionConfig::default(),
            wake: WakeConfig::default(),
            feed: FeedConfig::default(),
            warden: WardenConfig::default(),
            emit: EmitConfig::default(),
            cache: CacheConfig::default(),
        }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(2),
            lock_limit: Duration::from_secs(60),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(3),
        }
    }
}

impl Default for WakeConfig {
    fn default() -> Self {
        Self {
            listen: true,
            probe_interval: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(2),
        }
    }
}

impl Default for FeedConfig {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(500),
            poll_unproved: Duration::from_millis(50),
            page_min: 500,
            page_max: 5_000,
            heartbeat: Duration::from_secs(10),
            sync_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for WardenConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            claim: Duration::from_secs(10),
            chores: Duration::from_secs(60),
            check_interval: Duration::from_secs(5),
            retention: Duration::from_secs(3_600),
            retention_max: Duration::from_secs(86_400),
        }
    }
}

impl Default for EmitConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_millis(10),
            bound: 10_000,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(600),
            capacity: 100_000,
            when_stale: WhenStale::Bypass,
            load_timeout: Duration::from_secs(30),
            max_loads: 64,
        }
    }
}

#[cfg(test)]
mod tests;
