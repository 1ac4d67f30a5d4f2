//! A place for one cluster: a TCP port and a directory, both kept while the cluster lives, also while its
//! server is down.
//!
//! The port's number names the directory and a lock file. The kernel releases the lock when this process ends,
//! however it ends; so a directory whose lock is free is an orphan, and the next cluster removes it.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Below the range from which the kernel takes the ports of outgoing connections: one of those could sit on
/// the port while the server is down and keep it from coming back.
const FIRST: u16 = 20_000;
const SLOTS: u16 = 500;

/// Memory to leave free for a lab in memory.
const ROOM: u64 = 4 << 30;

/// Where a lab keeps its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    /// `/dev/shm` where it has 4 GiB to spare, else as [`Disk`](Self::Disk). Making a thousand files on a disk
    /// can take most of a second, in memory it takes 50 ms.
    Fast,
    /// The directory for temporary files.
    Disk,
}

/// The directory that all labs of this user share on one medium. `PGEVICT_LAB_DIR` overrides where it is.
pub(super) fn shared_dir(medium: Medium) -> Result<PathBuf> {
    let memory = Path::new("/dev/shm");
    let base = match std::env::var_os("PGEVICT_LAB_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None if medium == Medium::Fast && room(memory) >= ROOM => memory.to_path_buf(),
        None => std::env::temp_dir(),
    };
    let uid = rustix::process::geteuid().as_raw();
    let dir = base.join(format!("pgevict-lab-{uid}"));
    let refused = |error| Error::refused(format!("{} cannot be made", dir.display())).because(error);
    match fs::create_dir(&dir) {
        Ok(()) => fs::set_permissions(&dir, Permissions::from_mode(0o755)).map_err(refused)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(error)),
    }
    // The name can be guessed: a stranger must not have made it, nor have put a link there.
    let metadata = fs::symlink_metadata(&dir).map_err(refused)?;
    if !metadata.is_dir() || metadata.uid() != uid {
        return Err(Error::refused(format!(
            "{} belongs to somebody else",
            dir.display()
        )));
    }
    Ok(dir)
}

fn room(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The port and directory of one cluster. Dropping it removes the directory.
#[derive(Debug)]
pub(super) struct Home {
    port: u16,
    dir: PathBuf,
    _lock: File,
}

impl Home {
    /// Takes a free place in `shared`; removes what dead labs left there.
    pub(super) fn take(shared: &Path) -> Result<Self> {
        // One set of locks for all media: a port is a port.
        Self::take_locked(&shared_dir(Medium::Disk)?, shared)
    }

    fn take_locked(locks: &Path, shared: &Path) -> Result<Self> {
        sweep(locks, shared);
        let start = fastrand::u16(..SLOTS);
        for slot in 0..SLOTS {
            let port = FIRST + (start + slot) % SLOTS;
            let Some(lock) = lock(locks, port)? else { continue };
            let dir = shared.join(format!("cluster-{port}"));
            let refused = |error| Error::refused(format!("{} cannot be made", dir.display())).because(error);
            if dir.exists() {
                fs::remove_dir_all(&dir).map_err(refused)?;
            }
            fs::create_dir(&dir).map_err(refused)?;
            let home = Self {
                port,
                dir,
                _lock: lock,
            };
            fs::set_permissions(&home.dir, Permissions::from_mode(0o755))
                .map_err(|error| Error::refused("no directory for a cluster").because(error))?;
            return Ok(home);
        }
        Err(Error::refused(format!(
            "no free TCP port on 127.0.0.1 from {FIRST} to {}",
            FIRST + SLOTS - 1
        )))
    }

    /// The port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The lock of a port that neither a lab nor any other program uses.
fn lock(locks: &Path, port: u16) -> Result<Option<File>> {
    let path = locks.join(format!("port-{port}"));
    let lock = File::create(&path)
        .map_err(|error| Error::refused(format!("{} cannot be written", path.display())).because(error))?;
    let free = lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    Ok(free.then_some(lock))
}

fn sweep(locks: &Path, shared: &Path) {
    for entry in shared.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let port = name
            .to_str()
            .and_then(|name| name.strip_prefix("cluster-")?.parse().ok());
        // A server that is still going down holds its port.
        if let Some(port) = port
            && let Ok(Some(_lock)) = lock(locks, port)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_differ_and_an_orphan_is_removed() {
        let shared = tempfile::tempdir().unwrap();
        let locks = tempfile::tempdir().unwrap();
        let take = || Home::take_locked(locks.path(), shared.path()).unwrap();
        // Outside the range, so that no cluster of another test listens on it.
        let orphan = shared.path().join(format!("cluster-{}", FIRST - 1));
        let one = take();
        fs::create_dir(&orphan).unwrap();
        let two = take();
        assert_ne!(one.port(), two.port());
        assert!(one.dir().exists() && two.dir().exists() && !orphan.exists());
        drop((one, two));
        assert_eq!(shared.path().read_dir().unwrap().count(), 0);
    }
}
