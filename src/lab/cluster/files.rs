//! Files that the options put into the data directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::Cluster;
use crate::{Error, Result};

/// The Unix socket never asks for a password.
const WITH_PASSWORD: &str = "local all all trust\nlocal replication all trust\n\
                             host all all all scram-sha-256\nhost replication all all scram-sha-256\n";

impl Cluster {
    /// Readable by the server's user only, as the server wants keys to be.
    pub(super) fn write_files(&self) -> Result<()> {
        let rules = self.options.password.iter();
        let rules = rules.map(|_| ("pg_hba.conf", WITH_PASSWORD));
        let given = self.options.files.iter();
        let given = given.map(|(name, contents)| (name.as_str(), contents.as_str()));
        for (name, contents) in rules.chain(given) {
            let path = self.data_dir().join(name);
            let refused =
                |error| Error::refused(format!("{} cannot be written", path.display())).because(error);
            fs::write(&path, contents).map_err(refused)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(refused)?;
            self.owner.give(&path)?;
        }
        Ok(())
    }
}
