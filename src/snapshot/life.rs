//! Which log a snapshot speaks of, and which life of its server.

use uuid::Uuid;

/// Which log this is. Differs after a restore, a clone into another cluster or an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Of the cluster; a copy of the data directory has the same.
    pub system_identifier: i64,
    /// Oid of the database.
    pub database: u32,
    /// Oid of `pgevict.event`.
    pub event_table: u32,
}

/// One unbroken life of what the server keeps in memory. Transaction ids of two lives say nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Random; a crash or promotion ends it.
    pub epoch: Uuid,
    /// The log.
    pub identity: Identity,
}
