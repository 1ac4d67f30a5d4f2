//! A TCP port kept for one cluster while it lives, also while its server is down.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use crate::{Error, Result};

/// Below the range from which the kernel takes the ports of outgoing connections: one of those could sit on
/// the port while the server is down and keep it from coming back.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port that no other cluster of this machine's labs takes.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    /// Locked while the port is in use; the kernel unlocks it when this process ends, however it ends.
    _lock: File,
}

impl Port {
    /// Takes a free port; `dir` holds the locks.
    pub(super) fn take(dir: &Path) -> Result<Self> {
        for _ in 0..1_000 {
            let number = fastrand::u16(RANGE);
            let path = dir.join(format!("port-{number}"));
            let lock = File::create(&path).map_err(|error| {
                Error::refused(format!("{} cannot be written", path.display())).because(error)
            })?;
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        Err(Error::refused(format!(
            "no free TCP port found on 127.0.0.1 from {} to {}",
            RANGE.start, RANGE.end
        )))
    }

    /// The number.
    pub(super) fn number(&self) -> u16 {
        self.number
    }
}
