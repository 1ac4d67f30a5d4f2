//! A second server that follows the first.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use super::{Cluster, database};
use crate::lab::home::{self, Home, Medium};
use crate::lab::template::{SUPERUSER, run};
use crate::{Error, Result};

impl Cluster {
    /// Starts a standby of this cluster, a copy that streams from it and has its settings; returns once it accepts
    /// connections. It is a cluster of its own, with its own port.
    ///
    /// # Errors
    /// As [`start`](Self::start); refused when this cluster cannot be copied.
    pub async fn standby(&self) -> Result<Self> {
        // What pg_basebackup writes names options that the libpq which the server finds may not know.
        let primary = format!(
            "host={} port={} user={SUPERUSER}",
            self.socket_dir().display(),
            self.port()
        );
        let standby = Self {
            home: Home::take(&home::shared_dir(Medium::Fast)?)?,
            options: self.options.clone().setting("primary_conninfo", primary),
            binaries: self.binaries.clone(),
            owner: self.owner.clone(),
            server: Mutex::new(None),
        };
        let mut copy = self.owner.command(&self.binaries.program("pg_basebackup"));
        copy.arg("-D").arg(standby.data_dir());
        copy.arg("-h").arg(self.socket_dir());
        copy.args(["-p", &self.port().to_string(), "-U", SUPERUSER]);
        copy.args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf"]);
        let prepared = tokio::task::spawn_blocking(move || {
            for dir in [standby.data_dir(), standby.socket_dir()] {
                let refused = |error| Error::refused("no directory for a standby").because(error);
                fs::create_dir(&dir).map_err(refused)?;
                standby.owner.give(&dir)?;
            }
            let private = fs::set_permissions(standby.data_dir(), Permissions::from_mode(0o700));
            private.map_err(|error| Error::refused("no directory for a standby").because(error))?;
            run(copy, "pg_basebackup")?;
            Ok(standby)
        });
        let standby = prepared
            .await
            .map_err(|error| Error::refused("preparing a standby failed").because(error))??;
        standby.start_again().await?;
        Ok(standby)
    }

    /// Makes a standby the primary; returns once it is. What it followed is not stopped.
    ///
    /// # Errors
    /// Unreachable when it is down; what the database answered when it is no standby.
    pub async fn promote(&self) -> Result<()> {
        let client = self.connect().await?;
        let promoted = client.batch_execute("select pg_promote(true, 30)").await;
        promoted.map_err(database)
    }
}
