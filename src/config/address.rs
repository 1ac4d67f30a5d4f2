//! The address of a server: a libpq URL or `key=value` string, read by our own code.
//!
//! Parsed here because the client library knows neither all of libpq's keys nor its units, and because no message
//! and no log line may hold a secret: what cannot be read is named by its key, its value is never repeated.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};

mod fields;
mod password;
mod servers;
mod split;
mod tls;

pub(crate) use password::Password;
pub(crate) use servers::Server;
#[cfg(feature = "tls")]
pub(crate) use tls::Roots;
pub(crate) use tls::{Mode, Tls};

/// Where the servers are and who we are there. Prints without its password.
#[derive(Clone)]
pub struct Address {
    /// Everything but servers and password file.
    base: tokio_postgres::Config,
    /// The same with the servers.
    config: tokio_postgres::Config,
    servers: Vec<Server>,
    tls: Tls,
    own_password: bool,
    password_file: Option<PathBuf>,
    /// Where a password is looked up that nothing else gives.
    table: Option<password::Table>,
    shown: String,
}

impl Address {
    /// Reads `postgresql://user:password@host:port/dbname?key=value` or `host=... user=...`, as libpq does.
    ///
    /// Several hosts (`host=a,b port=1,2`, `postgresql://a:1,b:2/dbname`) are tried in order until one is the
    /// primary. That is what `target_session_attrs` = `primary`, `read-write` or `any` says, set or not; other
    /// values are refused. `load_balance_hosts` has no effect: there is one primary.
    ///
    /// What the address leaves out comes from `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE`, `PGPASSWORD`, `PGSSLMODE`,
    /// `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`, `PGCONNECT_TIMEOUT`, `PGTARGETSESSIONATTRS` and `PGPASSFILE`; the
    /// password also from `passfile` or `~/.pgpass`, at each connect. Defaults after that: host `localhost`, port 5432, user that of this process, database the user's name, `sslmode=prefer`,
    /// application name `pgevict`, keepalives after 10 s every 5 s up to 3 times, `tcp_user_timeout` 20 s.
    /// `tcp_user_timeout` is in milliseconds, all other times are in seconds, as in libpq.
    ///
    /// TLS needs the crate's feature `tls`. `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `sslsni`,
    /// `sslnegotiation` and `channel_binding` mean what they mean in libpq, the files of `~/.postgresql` included.
    /// Unlike libpq, the name in a certificate must be a subject alternative name, and a file that is named must be
    /// there in every `sslmode` but `disable`.
    ///
    /// # Errors
    /// Invalid when the text or a variable is malformed, or holds a key or value that is not supported; the message
    /// names it and never holds a value.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_with(text, |name| std::env::var(name).ok())
    }

    fn parse_with(text: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut fields = fields::Fields::default();
        for (key, value) in split::pairs(text)? {
            fields.set(&key, value)?;
        }
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        fields.fill(env)?;
        fields.finish(env)
    }

    /// What the client library connects with. It knows no certificates and no password file, so only what needs
    /// neither connects; its walk over several hosts has no deadline.
    pub fn to_postgres(&self) -> &tokio_postgres::Config {
        &self.config
    }

    /// `postgresql://user@host:port/dbname`: no password, no parameters.
    pub fn redacted(&self) -> &str {
        &self.shown
    }

    /// True when the address itself gives the password, not a variable.
    pub(crate) fn has_own_password(&self) -> bool {
        self.own_password
    }

    /// From now on the password is what the file holds at the time of each connect.
    #[must_use]
    pub(crate) fn with_password_file(mut self, file: Option<PathBuf>) -> Self {
        self.password_file = file.or(self.password_file);
        self
    }

    /// The servers, in the order in which they are tried; never empty.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// How sessions are encrypted; over a Unix socket never.
    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// The limit of one attempt, when the address sets one.
    pub(crate) fn attempt_timeout(&self) -> Option<Duration> {
        self.base.get_connect_timeout().copied()
    }

    /// As [`redacted`](Self::redacted), for one of the servers.
    pub(crate) fn redacted_at(&self, server: &Server) -> String {
        split::shown(
            self.base.get_user(),
            std::slice::from_ref(server),
            self.base.get_dbname(),
        )
    }

    /// The settings for one server, at this IP address when it has one. The password of a file is not in it.
    pub(crate) fn at(&self, server: &Server, ip: Option<IpAddr>) -> tokio_postgres::Config {
        let mut config = self.base.clone();
        server.add_to(&mut config);
        if let (Some(ip), None) = (ip, server.addr) {
            config.hostaddr(ip);
        }
        config
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
}

impl std::str::FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

fn bad(key: &str, what: &str) -> Error {
    Error::invalid(format!("{key} in the address: {what}"))
}

#[cfg(test)]
mod tests;
