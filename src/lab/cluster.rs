//! A throwaway PostgreSQL cluster: one server over a temporary data directory.

mod reach;

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::binaries::Binaries;
use super::home::{self, Home, Medium};
use super::options::{ClusterOptions, StopMode};
use super::owner::Owner;
use super::template::{self, SUPERUSER};
use super::{keeper, processes};
use crate::{Error, Result};

/// Longest wait for a server to accept connections, or to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at a server that starts or stops.
const LOOK: Duration = Duration::from_millis(5);

/// One PostgreSQL server of one's own, on `127.0.0.1` and on a Unix socket, with the superuser `postgres`.
///
/// It keeps its port while it lives, also over [`stop`](Self::stop) and [`kill`](Self::kill). Dropping it
/// stops the server at once and removes its files; when the process dies without dropping it, the kernel
/// interrupts the server and the next cluster removes the files. They are in `/dev/shm` when there is room, and
/// in the directory for temporary files when there is not, or when the cluster is durable.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    binaries: Binaries,
    owner: Owner,
    /// `None` while the server is down.
    server: Mutex<Option<Child>>,
    /// Holds `data`, `socket` and `log`. The last field: it is removed after the server has stopped.
    home: Home,
}

impl Cluster {
    /// Starts a cluster with the default options.
    ///
    /// # Errors
    /// Refused when PostgreSQL is not found ([`Binaries::find`]), cannot be run by a user other than root, or
    /// ends while starting; timeout when it does not accept connections within 30 s. Both of these errors hold
    /// the end of the server's log.
    pub async fn start() -> Result<Self> {
        Self::start_with(ClusterOptions::new()).await
    }

    pub(super) async fn start_with(options: ClusterOptions) -> Result<Self> {
        let cluster = tokio::task::spawn_blocking(move || Self::prepare(options)).await;
        let cluster =
            cluster.map_err(|error| Error::refused("preparing a cluster failed").because(error))??;
        cluster.start_again().await?;
        if let Some(password) = &cluster.options.password {
            let set = format!(
                "ALTER ROLE {SUPERUSER} PASSWORD '{}'",
                password.replace('\'', "''")
            );
            cluster
                .connect()
                .await?
                .batch_execute(&set)
                .await
                .map_err(reach::database)?;
        }
        Ok(cluster)
    }

    /// Everything up to the start of the server.
    fn prepare(options: ClusterOptions) -> Result<Self> {
        let binaries = match &options.binaries {
            Some(binaries) => binaries.clone(),
            None => Binaries::find()?,
        };
        let owner = Owner::choose()?;
        owner.must_reach(binaries.dir())?;
        let medium = if options.durable {
            Medium::Disk
        } else {
            Medium::Fast
        };
        let shared = home::shared_dir(medium)?;
        owner.must_reach(&shared)?;
        let refused = |error| Error::refused("no directory for a cluster").because(error);
        let cluster = Self {
            home: Home::take(&shared)?,
            options,
            binaries,
            owner,
            server: Mutex::new(None),
        };
        let socket = cluster.socket_dir();
        fs::create_dir(&socket).map_err(refused)?;
        cluster.owner.give(&socket)?;
        template::copy(&shared, &cluster.binaries, &cluster.owner, &cluster.data_dir())?;
        if cluster.options.password.is_some() {
            let rules = "local all all trust\nhost all all all scram-sha-256\nhost replication all all scram-sha-256\n";
            fs::write(cluster.data_dir().join("pg_hba.conf"), rules).map_err(refused)?;
        }
        Ok(cluster)
    }

    /// Starts the server again after [`stop`](Self::stop) or [`kill`](Self::kill), on the same port; returns
    /// once it accepts connections. Does nothing while it runs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_again(&self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let child = keeper::spawn(self.server_command()?).await?;
        // Kept before the wait: who stops waiting still has a server that ends with the cluster.
        *self.server() = Some(child);
        let deadline = Instant::now() + PATIENCE;
        while self.connect().await.is_err() {
            if !self.is_running() {
                return Err(Error::refused(format!(
                    "the server ended while starting: {}",
                    self.log_tail()
                )));
            }
            if Instant::now() > deadline {
                self.end();
                return Err(Error::timeout(format!(
                    "no answer within {PATIENCE:?}: {}",
                    self.log_tail()
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn server_command(&self) -> Result<std::process::Command> {
        let refused = |error| Error::refused("the server's log cannot be opened").because(error);
        let open = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log: File = open.map_err(refused)?;
        let mut command = self.owner.command(&self.binaries.program("postgres"));
        command.arg("-D").arg(self.data_dir());
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "127.0.0.1");
        set("port", &self.port().to_string());
        set("unix_socket_directories", &self.socket_dir().to_string_lossy());
        set("shared_buffers", "16MB");
        set("max_connections", "200");
        // In the data directory, where it goes away with the rest even after a crash.
        set("dynamic_shared_memory_type", "mmap");
        if !self.options.durable {
            set("fsync", "off");
            set("synchronous_commit", "off");
            set("full_page_writes", "off");
            // The files may be in memory.
            set("max_wal_size", "256MB");
        }
        for (name, value) in &self.options.settings {
            set(name, value);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(refused)?)
            .stderr(log);
        // Its own group: an interrupt typed at the terminal is for the caller, who then stops the server.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }

    /// Stops the server; returns once it has ended. Does nothing while it is down.
    ///
    /// # Errors
    /// Timeout when it has not ended after 30 s; it is killed then.
    pub async fn stop(&self, mode: StopMode) -> Result<()> {
        let signal = match mode {
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        };
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            if Instant::now() > deadline {
                self.end();
                return Err(Error::timeout(format!(
                    "not stopped within {PATIENCE:?}: {}",
                    self.log_tail()
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Stops the server in the given way and starts it again.
    ///
    /// # Errors
    /// As [`stop`](Self::stop) and [`start_again`](Self::start_again).
    pub async fn restart(&self, mode: StopMode) -> Result<()> {
        self.stop(mode).await?;
        self.start_again().await
    }

    /// Kills every process of the server at once (SIGKILL), as a crash of the machine does; what was committed
    /// with `synchronous_commit` off may be lost up to the last half second or so. Does nothing while it is down.
    ///
    /// # Errors
    /// Timeout when a process is still there after 30 s.
    pub async fn kill(&self) -> Result<()> {
        let killed = self.pid().map(processes::kill_all).unwrap_or_default();
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() || killed.iter().any(|&pid| processes::is_alive(pid)) {
            if Instant::now() > deadline {
                return Err(Error::timeout(format!(
                    "a killed process is still there after {PATIENCE:?}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// The data directory; it belongs to the user the server runs as.
    pub fn data_dir(&self) -> PathBuf {
        self.home.dir().join("data")
    }

    /// The directory of the Unix socket.
    pub fn socket_dir(&self) -> PathBuf {
        self.home.dir().join("socket")
    }

    /// The PostgreSQL this cluster runs on.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The major version, like 18.
    pub fn major_version(&self) -> u32 {
        self.binaries.major()
    }

    /// What the server has logged since the first start.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.home.dir().join("log")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn server(&self) -> MutexGuard<'_, Option<Child>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pid(&self) -> Option<Pid> {
        self.server().as_ref().map(Pid::from_child)
    }

    /// Forgets a server that has ended, whatever ended it.
    fn is_running(&self) -> bool {
        let mut server = self.server();
        if server
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
        {
            return true;
        }
        *server = None;
        false
    }

    /// Stops the server for good, within moments; blocks for that long.
    #[expect(
        clippy::disallowed_methods,
        reason = "runs in Drop, where nothing can be awaited"
    )]
    fn end(&self) {
        let Some(pid) = self.pid() else { return };
        let _ = kill_process(pid, Signal::QUIT);
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.is_running() {
            if Instant::now() > deadline {
                processes::kill_all(pid);
                if let Some(mut child) = self.server().take() {
                    let _ = child.wait();
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end();
    }
}
