//! The user a server runs as. PostgreSQL refuses to run as root.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Result};

/// Users that root steps down to, the first that exists.
const STAND_INS: [&str; 3] = ["postgres", "pgevict-lab", "nobody"];

/// Who owns the data directory and runs the server.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    name: String,
    /// User and group to step down to; `None` when this process is not root.
    ids: Option<(u32, u32)>,
    setpriv: Option<PathBuf>,
}

impl Owner {
    /// This process's user, or, for root, the first of `postgres`, `pgevict-lab` and `nobody`.
    pub(super) fn choose() -> Result<Self> {
        let setpriv = on_path("setpriv");
        let uid = rustix::process::geteuid().as_raw();
        if uid != 0 {
            return Ok(Self {
                name: uid.to_string(),
                ids: None,
                setpriv,
            });
        }
        if setpriv.is_none() {
            return Err(Error::refused(
                "PostgreSQL does not run as root, and `setpriv` is missing to step down: install util-linux",
            ));
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let (name, ids) = STAND_INS
            .into_iter()
            .find_map(|name| Some((name.to_owned(), ids_of(&users, name)?)))
            .ok_or_else(|| {
                Error::refused(
                    "PostgreSQL does not run as root, and there is no user to step down to: \
                     `useradd --system --no-create-home --shell /usr/sbin/nologin pgevict-lab`",
                )
            })?;
        Ok(Self {
            name,
            ids: Some(ids),
            setpriv,
        })
    }

    /// Tells owners apart in file names.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs `program` as this user, which the kernel interrupts when the thread that started
    /// it ends, with none of the caller's `PG*` settings.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = match &self.setpriv {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                if let Some((uid, gid)) = self.ids {
                    command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
                    command.arg("--clear-groups");
                }
                command.args(["--pdeathsig", "INT"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        // The caller's directory may be closed to this user.
        command.current_dir("/").env("LC_ALL", "C");
        command
    }

    /// Hands `path` over to this user.
    pub(super) fn give(&self, path: &Path) -> Result<()> {
        let Some((uid, gid)) = self.ids else {
            return Ok(());
        };
        chown(path, Some(uid), Some(gid)).map_err(|error| {
            Error::refused(format!(
                "{} cannot be given to user {}",
                path.display(),
                self.name
            ))
            .because(error)
        })
    }

    /// Refuses a `path` that this user cannot reach because a directory above it is closed.
    pub(super) fn must_reach(&self, path: &Path) -> Result<()> {
        let Some((uid, gid)) = self.ids else {
            return Ok(());
        };
        for above in path.ancestors() {
            let Ok(metadata) = above.metadata() else { continue };
            let bit = match (metadata.uid() == uid, metadata.gid() == gid) {
                (true, _) => 0o100,
                (false, true) => 0o010,
                (false, false) => 0o001,
            };
            if metadata.mode() & bit == 0 {
                return Err(Error::refused(format!(
                    "user {} cannot reach {}: {} is closed to it; put it where every user may read, \
                     as `scripts/postgres` does",
                    self.name,
                    path.display(),
                    above.display()
                )));
            }
        }
        Ok(())
    }
}

fn on_path(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program.as_ref()))
        .find(|file| file.is_file())
}

/// User and group of `name` in the text of `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        Some((uid, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_from_the_passwd_format() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65533:nobody:/nonexistent:/usr/sbin/nologin\n";
        assert_eq!(ids_of(users, "nobody"), Some((65534, 65533)));
        assert_eq!(ids_of(users, "postgres"), None);
    }

    #[test]
    fn a_path_below_a_closed_directory_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let outer = tempfile::tempdir().unwrap();
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = Owner {
            name: "stranger".into(),
            ids: Some((u32::MAX - 7, u32::MAX - 7)),
            setpriv: None,
        };
        assert!(
            stranger
                .must_reach(&outer.path().join("bin"))
                .unwrap_err()
                .is_refused()
        );
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o755)).unwrap();
        stranger.must_reach(&outer.path().join("bin")).unwrap();
    }
}
