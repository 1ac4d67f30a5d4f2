//! How a cluster is reached: its addresses, sessions and client programs.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use tokio_postgres::{Client, NoTls};

use super::{Cluster, SUPERUSER};
use crate::{Error, Result};

impl Cluster {
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
}

pub(super) fn database(error: tokio_postgres::Error) -> Error {
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

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_means_something_in_a_url_is_escaped() {
        assert_eq!(escape("/tmp/a_b-c.d"), "%2Ftmp%2Fa_b-c.d");
        assert_eq!(escape("p@:ü"), "p%40%3A%C3%BC");
    }
}
