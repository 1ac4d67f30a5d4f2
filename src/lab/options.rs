//! How a cluster is set up and stopped.

use super::{Binaries, Cluster};
use crate::Result;

/// How a server is stopped. [`Cluster::kill`] is the third way: without telling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Ends every session, writes a checkpoint, leaves a clean data directory.
    Fast,
    /// Ends at once; the next start recovers from the log.
    Immediate,
}

/// What a [`Cluster`] is started with. The default is fast, not durable: `fsync`, `synchronous_commit` and
/// `full_page_writes` off, every local user may connect as any role.
///
/// ```no_run
/// # async fn example() -> pgevict::Result<()> {
/// let cluster = pgevict::lab::ClusterOptions::new()
///     .setting("wal_level", "logical")
///     .password("s3cret")
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    pub(super) settings: Vec<(String, String)>,
    pub(super) durable: bool,
    pub(super) password: Option<String>,
    pub(super) files: Vec<(String, String)>,
    pub(super) binaries: Option<Binaries>,
}

impl ClusterOptions {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server setting, as on the command line (`-c name=value`). The last of one name wins, also over
    /// the lab's own.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Leaves PostgreSQL's durability on, for measuring what a commit costs.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// TCP connections must give a password (SCRAM-SHA-256); this is the superuser's, and [`Cluster::url`]
    /// holds it. The Unix socket still asks for none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Puts a file into the data directory, readable by the server's user only: `pg_hba.conf`, certificates.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, contents: impl Into<String>) -> Self {
        self.files.push((name.into(), contents.into()));
        self
    }

    /// The server offers TLS with this certificate and key, both PEM. It goes on answering without TLS.
    #[must_use]
    pub fn tls(self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.file("server.crt", certificate)
            .file("server.key", key)
            .setting("ssl", "on")
    }

    /// Uses these programs instead of those that [`Binaries::find`] finds.
    #[must_use]
    pub fn binaries(mut self, binaries: Binaries) -> Self {
        self.binaries = Some(binaries);
        self
    }

    /// Starts the cluster.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start(self) -> Result<Cluster> {
        Cluster::start_with(self).await
    }
}
