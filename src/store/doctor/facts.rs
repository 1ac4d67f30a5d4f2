//! What the questions return.

use serde::{Deserialize, Serialize};

/// The server, and who asks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Place {
    /// `server_version_num`, such as 180006.
    pub version: i32,
    /// The role.
    pub role: String,
    /// The database.
    pub database: String,
    /// True on a standby.
    pub in_recovery: bool,
    /// True on Aurora.
    pub aurora: bool,
    /// The setting `max_prepared_transactions`.
    pub max_prepared: i32,
    /// False when the role does not see what other roles' sessions do.
    pub sees_others: bool,
}

/// What is installed in a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Versions {
    /// Version of the tables.
    pub schema: i32,
    /// Oldest version a binary may know and still use these tables.
    pub least_reader: i32,
    /// Version of the functions.
    pub functions: i32,
    /// Checksum of the functions' text.
    pub checksum: String,
    /// How writers announce events.
    pub wake: String,
}

/// What the role may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Rights {
    /// Fetch, heartbeat, epoch: `pgevict_reader`.
    pub read: bool,
    /// Emit: `pgevict_emitter`.
    pub emit: bool,
    /// Stand for election and prune: `pgevict_instance`.
    pub prune: bool,
    /// List the watches: `pgevict_admin`.
    pub watches: bool,
}

/// A session that holds something up; what the role may not see is empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Holder {
    /// The server process; 0 for a prepared transaction.
    pub pid: i32,
    /// Its database.
    pub database: Option<String>,
    /// Its role.
    pub role: Option<String>,
    /// `application_name`.
    pub application: Option<String>,
    /// `state`, such as `idle in transaction`.
    pub state: Option<String>,
    /// What it waits for, such as `Client/ClientWrite`.
    pub wait: Option<String>,
    /// Seconds since its transaction, or what it waits for, began.
    pub seconds: f64,
    /// Seconds since its statement began.
    pub query_seconds: Option<f64>,
    /// Name of a prepared transaction.
    pub gid: Option<String>,
}

/// The server's queue of notifications.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Queue {
    /// Share that is full, 0 to 1.
    pub usage: f64,
    /// Sessions that may hold it, if they listen, the longest first; the server does not show who listens.
    pub suspects: Vec<Holder>,
    /// Sessions whose state the role may not see.
    pub hidden: i64,
}

/// The lock that a commit with NOTIFY takes, seen several times.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct NotifyLock {
    /// Looks at which somebody waited.
    pub seen: u32,
    /// Looks.
    pub samples: u32,
    /// Most who waited at one look.
    pub waiting: i64,
    /// Longest wait, in seconds.
    pub longest: f64,
    /// Some of those who waited.
    pub waiters: Vec<Holder>,
    /// Who held it.
    pub holder: Option<Holder>,
}

/// Transactions that have had an id for long: all that they write is unseen until they end.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Transactions {
    /// The oldest ones, prepared ones among them.
    pub long: Vec<Holder>,
    /// Writing transactions whose age the role may not see.
    pub hidden: i64,
}

/// A watched table that a subscription writes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Subscribed {
    /// Name of the subscription.
    pub subscription: String,
    /// The table, with its schema.
    pub table: String,
    /// True when the watch fires for what replication applies.
    pub fires: bool,
}

/// A publication that has tables of pgevict in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Publication {
    /// Its name.
    pub name: String,
    /// `all tables`, `schema` or `table`.
    pub what: String,
}

/// A partition that was made or attached after its table was watched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Later {
    /// The watched table.
    pub table: String,
    /// The partition.
    pub partition: String,
}

/// What the catalog says of watched tables: logical replication of this database, and partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Catalog {
    /// Watched tables that are written by subscriptions.
    pub subscribed: Vec<Subscribed>,
    /// Publications that take our tables along.
    pub publications: Vec<Publication>,
    /// Partitions that came after the last `watch`.
    pub later: Vec<Later>,
}

/// The log, and who keeps it short.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Log {
    /// Size with its indexes, in bytes.
    pub bytes: i64,
    /// Seconds since the oldest event was emitted.
    pub oldest: Option<f64>,
    /// Instances heard of within 60 s.
    pub instances: i64,
    /// The instance in office.
    pub warden: Option<String>,
    /// Seconds since somebody noted how far the log is.
    pub noted: Option<f64>,
    /// The live instance that has read least.
    pub slowest: Option<String>,
    /// Dead rows of `pgevict.event`, by the server's statistics.
    pub dead_rows: i64,
    /// Live rows, by the server's statistics.
    pub live_rows: i64,
    /// False when autovacuum is off, in the server or for the log.
    pub autovacuum: bool,
}

impl NotifyLock {
    /// Takes another look into account.
    pub(super) fn add(&mut self, sample: Self) {
        self.samples += 1;
        if sample.waiting == 0 {
            return;
        }
        self.seen += 1;
        self.longest = self.longest.max(sample.longest);
        if sample.waiting >= self.waiting {
            (self.waiting, self.waiters, self.holder) = (sample.waiting, sample.waiters, sample.holder);
        }
    }
}
