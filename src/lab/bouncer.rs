//! A pooler between a client and a cluster.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::sleep;

use super::Cluster;
use super::home::{self, Home, Medium};
use super::keeper;
use crate::{Error, Result};

/// Longest wait until it accepts connections.
const START: Duration = Duration::from_secs(10);

/// For how long PgBouncer lends a session of the server to one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolMode {
    /// Until the client goes away.
    Session,
    /// For one transaction.
    Transaction,
}

/// A PgBouncer before one cluster, with three sessions of the server. Dropping it stops it.
#[derive(Debug)]
pub struct Bouncer {
    process: Child,
    home: Home,
}

impl Bouncer {
    /// Starts it. The program is Debian's package `pgbouncer`.
    ///
    /// # Errors
    /// Refused when the program is not there or does not start, timeout when it does not accept connections within 10 s.
    pub async fn before(cluster: &Cluster, mode: PoolMode) -> Result<Self> {
        let home = Home::take(&home::shared_dir(Medium::Fast)?)?;
        let settings = home.dir().join("pgbouncer.ini");
        let refused = |error| Error::refused("the pooler's files cannot be written").because(error);
        fs::write(
            &settings,
            format!(
                "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {}\nunix_socket_dir =\nauth_type = any\npool_mode = {}\ndefault_pool_size = 3\n",
                cluster.port(),
                home.port(),
                match mode {
                    PoolMode::Session => "session",
                    PoolMode::Transaction => "transaction",
                }
            ),
        )
        .map_err(refused)?;
        let log = fs::File::create(home.dir().join("log")).map_err(refused)?;
        let mut command = cluster.owner().command(Path::new("pgbouncer"));
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .arg(settings)
            // Debian keeps it where only root looks.
            .env("PATH", format!("{path}:/usr/sbin"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut bouncer = Self {
            process: keeper::spawn(command).await?,
            home,
        };
        let deadline = Instant::now() + START;
        while TcpStream::connect(bouncer.address()).await.is_err() {
            if let Ok(Some(ended)) = bouncer.process.try_wait() {
                return Err(Error::refused(format!(
                    "pgbouncer ended while starting ({ended}); is the package pgbouncer installed? {}",
                    fs::read_to_string(bouncer.home.dir().join("log")).unwrap_or_default()
                )));
            }
            if Instant::now() > deadline {
                return Err(Error::timeout("pgbouncer does not accept connections within 10s"));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(bouncer)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.home.port()).into()
    }

    /// As [`Cluster::url`], through the pooler.
    pub fn url(&self, cluster: &Cluster) -> String {
        cluster.url_at(self.address(), "postgres")
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
