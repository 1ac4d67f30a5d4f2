//! Where the password comes from, besides the address: a file that holds it alone, or libpq's table of passwords.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{Address, Server};
use crate::error::{Error, Result};

/// libpq's table, `host:port:database:user:password` a line.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) file: PathBuf,
    /// False: `~/.pgpass`, which need not be there.
    pub(super) named: bool,
}

/// What was read for one connect.
pub(crate) enum Password {
    /// That of the address, or none.
    OfAddress,
    /// The same for all servers.
    Alone(Vec<u8>),
    /// One for each server.
    InTable(String),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Folders that the table calls `localhost`: the defaults of PostgreSQL and of Debian.
const DEFAULT_SOCKETS: [&str; 2] = ["/tmp", "/var/run/postgresql"];

impl Address {
    /// Reads the file that counts. Blocks.
    ///
    /// # Errors
    /// Invalid when a file that is named cannot be read or used; the message names the file.
    pub(crate) fn read_password(&self) -> Result<Password> {
        if let Some(file) = &self.password_file {
            return alone(file).map(Password::Alone);
        }
        match &self.table {
            Some(table) if self.base.get_password().is_none() => read_table(table),
            _ => Ok(Password::OfAddress),
        }
    }

    /// The password for one server; `None`: that of the address.
    pub(crate) fn password_at(&self, read: &Password, server: &Server) -> Option<Vec<u8>> {
        match read {
            Password::OfAddress => None,
            Password::Alone(password) => Some(password.clone()),
            Password::InTable(table) => {
                let host = match server.host.as_str() {
                    socket if DEFAULT_SOCKETS.contains(&socket) => "localhost",
                    host => host,
                };
                let port = server.port.to_string();
                let (user, dbname) = (self.base.get_user(), self.base.get_dbname());
                let sought = [host, &port, dbname.unwrap_or_default(), user.unwrap_or_default()];
                look_up(table, sought).map(String::into_bytes)
            }
        }
    }
}

fn alone(file: &std::path::Path) -> Result<Vec<u8>> {
    let shown = file.display();
    let mut password = std::fs::read(file)
        .map_err(|error| Error::invalid(format!("cannot read password_file {shown}")).because(error))?;
    if password.last() == Some(&b'\n') {
        password.pop();
        if password.last() == Some(&b'\r') {
            password.pop();
        }
    }
    if password.is_empty() {
        return Err(Error::invalid(format!("password_file {shown} is empty")));
    }
    if password.contains(&0) {
        return Err(Error::invalid(format!("password_file {shown} holds a zero byte")));
    }
    Ok(password)
}

fn read_table(Table { file, named }: &Table) -> Result<Password> {
    let shown = file.display();
    let unreadable = |error| Error::invalid(format!("cannot read passfile {shown}")).because(error);
    let metadata = match file.metadata() {
        Err(_) if !named => return Ok(Password::OfAddress),
        metadata => metadata.map_err(unreadable)?,
    };
    // As in libpq, but a file that was named is not passed over in silence.
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        let what = format!("passfile {shown} must be a file that nobody else can read: chmod 0600");
        if *named {
            return Err(Error::invalid(what));
        }
        tracing::warn!(file = %shown, "passfile is not used: others can read it");
        return Ok(Password::OfAddress);
    }
    match std::fs::read_to_string(file) {
        Err(_) if !named => Ok(Password::OfAddress),
        text => text.map(Password::InTable).map_err(unreadable),
    }
}

/// The password of the first line that fits. `*` alone fits everything, a backslash takes the next character as it
/// is.
fn look_up(table: &str, sought: [&str; 4]) -> Option<String> {
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let mut rest = line;
            for sought in sought {
                let (raw, value, tail) = field(rest);
                rest = tail?;
                if raw != "*" && value != sought {
                    return None;
                }
            }
            Some(field(rest).1)
        })
        .filter(|password| !password.is_empty())
}

/// The first field as it stands and as it is meant, and what follows its colon.
fn field(text: &str) -> (&str, String, Option<&str>) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => value.push(chars.next().map_or('\\', |(_, next)| next)),
            ':' => return (&text[..at], value, Some(&text[at + 1..])),
            char => value.push(char),
        }
    }
    (text, value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let table = "# db:5432:shop:app:comment\n\nshort:1\ndb:5432:shop:app:one\n*:5432:*:app:t\\:w\\\\o\n\
                     a\\:b:*:*:*:three\r\n*:7:*:*:\n\\*:*:*:*:star\n*:*:*:last:four:more";
        let at = |host, port, user| look_up(table, [host, port, "shop", user]);
        assert_eq!(at("db", "5432", "app").as_deref(), Some("one"));
        assert_eq!(at("other", "5432", "app").as_deref(), Some("t:w\\o"));
        assert_eq!(at("a:b", "1", "x").as_deref(), Some("three"));
        assert_eq!(at("*", "1", "x").as_deref(), Some("star"));
        assert_eq!(at("h", "1", "last").as_deref(), Some("four"));
        assert_eq!(at("h", "1", "x"), None);
        assert_eq!(at("h", "7", "last"), None);
        assert_eq!(at("short", "1", "x"), None);
    }
}
