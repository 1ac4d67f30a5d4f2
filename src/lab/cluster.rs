//! A throwaway PostgreSQL cluster: one server over a temporary data directory.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::{Client, NoTls};

use super::binaries::Binaries;
use super::home::{self, Home, Medium};
use super::options::{ClusterOptions, StopMode};
use super::owner::Owner;
use super::template::{self, SUPERUSER};
use super::{keeper, processes};
use crate::{Error, Result};

mod files;
mod standby;

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
                .map_err(database)?;
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
        cluster.write_files()?;
        Ok(cluster)
    }

    /// Starts the server again after [`stop`](Self::stop) or [`kill`](Self::kill), on the same port; returns
    /// once it accepts connections. Does nothing while it runs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_again(&self) -> Result<()> {
        if self.server().is_some() {
            return Ok(());
        }
        let mut child = keeper::spawn(self.server_command()?).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(Error::refused(format!(
                    "the server ended while starting ({status}): {}",
                    self.log_tail()
                )));
            }
            if self.connect().await.is_ok() {
                *self.server() = Some(child);
                return Ok(());
            }
            if Instant::now() > deadline {
                end(child);
                return Err(Error::timeout(format!(
                    "no answer within {PATIENCE:?}: {}",
                    self.log_tail()
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
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
        let Some(mut child) = self.server().take() else {
            return Ok(());
        };
        let signal = match mode {
            StopMode::Fast => Signal::INT,
            StopMode::Immediate => Signal::QUIT,
        };
        let _ = kill_process(Pid::from_child(&child), signal);
        let deadline = Instant::now() + PATIENCE;
        while let Ok(None) = child.try_wait() {
            if Instant::now() > deadline {
                end(child);
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
        let Some(mut child) = self.server().take() else {
            return Ok(());
        };
        let killed = processes::kill_all(Pid::from_child(&child));
        let deadline = Instant::now() + PATIENCE;
        while matches!(child.try_wait(), Ok(None)) || killed.iter().any(|&pid| processes::is_alive(pid)) {
            if Instant::now() > deadline {
                return Err(Error::timeout(format!(
                    "a killed process is still there after {PATIENCE:?}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// A new session of the superuser in the database `postgres`, over the Unix socket; a task drives it until
    /// the client is dropped.
    ///
    /// # Errors
    /// Unreachable when the server is down or refuses.
    pub async fn connect(&self) -> Result<Client> {
        self.connect_to("postgres").await
    }

    /// As [`connect`](Self::connect), in the database `name`.
    ///
    /// # Errors
    /// Unreachable when the server is down, refuses or has no such database.
    pub async fn connect_to(&self, name: &str) -> Result<Client> {
        let connect = tokio_postgres::Config::new()
            .host_path(self.socket_dir())
            .port(self.port())
            .user(SUPERUSER)
            .dbname(name)
            .connect(NoTls)
            .await;
        let (client, connection) = connect
            .map_err(|error| Error::unreachable("the cluster does not accept a connection").because(error))?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Makes the database `name` and returns its [`url_for`](Self::url_for).
    ///
    /// # Errors
    /// Unreachable when the server is down; else what the database answered.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let create = format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""));
        self.connect()
            .await?
            .batch_execute(&create)
            .await
            .map_err(database)?;
        Ok(self.url_for(name))
    }

    /// Runs `psql` in the database `postgres`, with neither start-up file nor caller's settings and stopping at
    /// the first error, and returns what it printed.
    ///
    /// # Errors
    /// Refused when it cannot be started or ends with an error; the message holds what it wrote.
    pub async fn psql<I, S>(&self, args: I) -> Result<String>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = self.command("psql");
        command.args(["--no-psqlrc", "--set=ON_ERROR_STOP=1"]).args(args);
        let output = command.output().await;
        let output = output.map_err(|error| Error::refused("psql does not start").because(error))?;
        if !output.status.success() {
            let wrote = String::from_utf8_lossy(&output.stderr);
            return Err(Error::refused(format!(
                "psql failed ({}): {}",
                output.status,
                wrote.trim()
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A client program of this PostgreSQL, like `pgbench` or `pg_dump`, pointed at this cluster's Unix socket
    /// by its environment. It runs as the caller and is killed when its handle is dropped.
    pub fn command(&self, program: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(self.binaries.program(program));
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        command
            .env("PGHOST", self.socket_dir())
            .env("PGPORT", self.port().to_string())
            .env("PGUSER", SUPERUSER)
            .env("PGDATABASE", "postgres")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// `postgresql://postgres@127.0.0.1:<port>/postgres`, with the password when there is one.
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// As [`url`](Self::url), for another database.
    pub fn url_for(&self, database: &str) -> String {
        self.url_at(self.address(), database)
    }

    /// As [`url_for`](Self::url_for), through another address, such as a proxy's.
    pub fn url_at(&self, address: SocketAddr, database: &str) -> String {
        let password = self.options.password.as_deref();
        let password = password
            .map(|password| format!(":{}", escape(password)))
            .unwrap_or_default();
        format!(
            "postgresql://{SUPERUSER}{password}@{address}/{}",
            escape(database)
        )
    }

    /// As [`url`](Self::url), over the Unix socket, which never asks for a password.
    pub fn socket_url(&self) -> String {
        let socket = self.socket_dir();
        format!(
            "postgresql://{SUPERUSER}@{}:{}/postgres",
            escape(&socket.to_string_lossy()),
            self.port()
        )
    }

    /// The TCP address, the same for the whole life of the cluster.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.home.port()
    }

    /// The data directory; it belongs to the user the server runs as.
    pub fn data_dir(&self) -> PathBuf {
        self.home.dir().join("data")
    }

    /// The directory of the Unix socket.
    pub fn socket_dir(&self) -> PathBuf {
        self.home.dir().join("socket")
    }

    /// Who runs the server, and what stands before it.
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
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
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(child) = self.server().take() {
            end(child);
        }
    }
}

/// Stops a server for good, within moments; blocks for that long.
#[expect(
    clippy::disallowed_methods,
    reason = "runs in Drop, where nothing can be awaited"
)]
fn end(mut child: Child) {
    let pid = Pid::from_child(&child);
    let _ = kill_process(pid, Signal::QUIT);
    let deadline = Instant::now() + Duration::from_secs(5);
    while let Ok(None) = child.try_wait() {
        if Instant::now() > deadline {
            processes::kill_all(pid);
            let _ = child.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn database(error: tokio_postgres::Error) -> Error {
    Error::database("the cluster refused a statement").because(error)
}

/// Escapes all but letters, digits and `_`, `.`, `-` for a place in a URL.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
