//! The address of a server: a libpq URL or `key=value` string, read by our own code.
//!
//! Parsed here because the client library knows neither all of libpq's keys nor its units, and because no message
//! and no log line may hold a secret: what cannot be read is named by its key, its value is never repeated.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::error::{Error, Result};

mod split;

/// Where a server is and who we are there. Prints without its password.
#[derive(Clone)]
pub struct Address {
    config: tokio_postgres::Config,
    shown: String,
}

impl Address {
    /// Reads `postgresql://user:password@host:port/dbname?key=value` or `host=... user=...`, as libpq does.
    ///
    /// Defaults: host `localhost`, port 5432, user `PGUSER` or else the user of this process, database the user's
    /// name, application name `pgevict`, keepalives after 10 s every 5 s up to 3 times, `tcp_user_timeout` 20 s.
    /// `tcp_user_timeout` is in milliseconds, all other times are in seconds, as in libpq.
    ///
    /// # Errors
    /// Invalid when the text is malformed, or names several hosts or a key that is not supported; the message names
    /// the key and never holds a value.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_with(text, |name| std::env::var(name).ok())
    }

    fn parse_with(text: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut fields = Fields::default();
        for (key, value) in split::pairs(text)? {
            fields.set(&key, value)?;
        }
        fields.finish(env)
    }

    /// What the client library connects with.
    pub fn to_postgres(&self) -> &tokio_postgres::Config {
        &self.config
    }

    /// `postgresql://user@host:port/dbname`: no password, no parameters.
    pub fn redacted(&self) -> &str {
        &self.shown
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

/// Keys of libpq that are not supported yet, and what to do about it.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("gssdelegation", "Kerberos is not supported: remove it"),
    ("gssencmode", "Kerberos is not supported: remove it"),
    ("gsslib", "Kerberos is not supported: remove it"),
    ("krbsrvname", "Kerberos is not supported: remove it"),
    ("min_protocol_version", "is not supported yet: remove it"),
    ("max_protocol_version", "is not supported yet: remove it"),
    (
        "passfile",
        "is not supported yet: put the password into the address",
    ),
    ("replication", "is not supported: this needs an ordinary session"),
    ("require_auth", "is not supported yet: remove it"),
    ("requirepeer", "is not supported yet: remove it"),
    (
        "service",
        "is not supported yet: write the service's host, user and dbname",
    ),
    (
        "servicefile",
        "is not supported yet: write the service's host, user and dbname",
    ),
    ("ssl_max_protocol_version", "TLS is not supported yet: remove it"),
    ("ssl_min_protocol_version", "TLS is not supported yet: remove it"),
    ("sslcert", "TLS is not supported yet: remove it"),
    ("sslcertmode", "TLS is not supported yet: remove it"),
    ("sslcompression", "TLS is not supported yet: remove it"),
    ("sslcrl", "TLS is not supported yet: remove it"),
    ("sslcrldir", "TLS is not supported yet: remove it"),
    ("sslkey", "TLS is not supported yet: remove it"),
    ("sslpassword", "TLS is not supported yet: remove it"),
    ("sslrootcert", "TLS is not supported yet: remove it"),
    ("sslsni", "TLS is not supported yet: remove it"),
];

/// Keys that are supported; for telling a misspelt key from a piece of a password.
const SUPPORTED: &[&str] = &[
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslmode",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

#[derive(Default)]
struct Fields {
    user: Option<String>,
    password: Option<String>,
    host: Option<String>,
    hostaddr: Option<IpAddr>,
    port: Option<u16>,
    dbname: Option<String>,
    options: Option<String>,
    application_name: Option<String>,
    fallback_application_name: Option<String>,
    ssl_mode: Option<SslMode>,
    target: Option<TargetSessionAttrs>,
    connect_timeout: Option<u32>,
    keepalives: Option<bool>,
    keepalives_idle: Option<u32>,
    keepalives_interval: Option<u32>,
    keepalives_count: Option<u32>,
    tcp_user_timeout_ms: Option<u32>,
}

impl Fields {
    fn set(&mut self, key: &str, value: String) -> Result<()> {
        // libpq takes an empty value for the default.
        if value.is_empty() {
            return known(key);
        }
        if value.contains('\0') {
            known(key)?;
            return Err(bad(key, "holds a zero byte"));
        }
        match key {
            "user" => self.user = Some(value),
            "password" => self.password = Some(value),
            "host" => self.host = Some(host(value)?),
            "hostaddr" => {
                self.hostaddr = Some(
                    value
                        .parse()
                        .map_err(|_| one_host(key, &value, "an IP address"))?,
                )
            }
            "port" => self.port = Some(port(&value)?),
            "dbname" => self.dbname = Some(value),
            "options" => self.options = Some(value),
            "application_name" => self.application_name = Some(value),
            "fallback_application_name" => self.fallback_application_name = Some(value),
            "client_encoding" if ["utf8", "utf-8", "unicode", "auto"].contains(&&*value.to_lowercase()) => {}
            "client_encoding" => return Err(bad(key, "must be UTF8: remove it")),
            "connect_timeout" => self.connect_timeout = Some(positive(key, &value)?),
            "keepalives" => self.keepalives = Some(number(key, &value)? != 0),
            "keepalives_idle" => self.keepalives_idle = Some(positive(key, &value)?),
            "keepalives_interval" => self.keepalives_interval = Some(positive(key, &value)?),
            "keepalives_count" => self.keepalives_count = Some(positive(key, &value)?),
            "tcp_user_timeout" => self.tcp_user_timeout_ms = Some(number(key, &value)?),
            "sslmode" => self.ssl_mode = Some(ssl_mode(&value)?),
            "sslnegotiation" if value == "postgres" => {}
            "sslnegotiation" => return Err(bad(key, "TLS is not supported yet: remove it")),
            "channel_binding" if value == "disable" || value == "prefer" => {}
            "channel_binding" => return Err(bad(key, "needs TLS, which is not supported yet: remove it")),
            "load_balance_hosts" if value == "disable" || value == "random" => {}
            "load_balance_hosts" => return Err(bad(key, "must be disable or random")),
            "target_session_attrs" => self.target = Some(target(&value)?),
            key => known(key)?,
        }
        Ok(())
    }

    fn finish(self, env: impl Fn(&str) -> Option<String>) -> Result<Address> {
        let env = |name| env(name).filter(|value| !value.is_empty());
        let user = self
            .user
            .or_else(|| env("PGUSER"))
            .or_else(|| env("USER"))
            .or_else(|| env("LOGNAME"));
        let dbname = self.dbname.or_else(|| user.clone());
        let host = match (self.host, self.hostaddr) {
            (Some(host), _) => host,
            (None, Some(addr)) => addr.to_string(),
            (None, None) => "localhost".to_owned(),
        };
        let port = self.port.unwrap_or(5432);

        let mut config = tokio_postgres::Config::new();
        config.host(&host).port(port);
        config.ssl_mode(self.ssl_mode.unwrap_or(SslMode::Prefer));
        if let Some(addr) = self.hostaddr {
            config.hostaddr(addr);
        }
        if let Some(user) = &user {
            config.user(user);
        }
        if let Some(dbname) = &dbname {
            config.dbname(dbname);
        }
        if let Some(password) = self.password {
            config.password(password);
        }
        if let Some(options) = self.options {
            config.options(options);
        }
        if let Some(target) = self.target {
            config.target_session_attrs(target);
        }
        let name = self.application_name.or(self.fallback_application_name);
        config.application_name(name.as_deref().unwrap_or("pgevict"));

        let whole = |seconds: Option<u32>, default| Duration::from_secs(seconds.unwrap_or(default).into());
        if self.connect_timeout.is_some() {
            config.connect_timeout(whole(self.connect_timeout, 0));
        }
        config.keepalives(self.keepalives.unwrap_or(true));
        config.keepalives_idle(whole(self.keepalives_idle, 10));
        config.keepalives_interval(whole(self.keepalives_interval, 5));
        config.keepalives_retries(self.keepalives_count.unwrap_or(3));
        // 0 stands for the default of the system, as in libpq.
        let ms = self.tcp_user_timeout_ms.unwrap_or(20_000);
        if ms > 0 {
            config.tcp_user_timeout(Duration::from_millis(ms.into()));
        }

        let shown = split::shown(user.as_deref(), &host, port, dbname.as_deref());
        Ok(Address { config, shown })
    }
}

fn bad(key: &str, what: &str) -> Error {
    Error::invalid(format!("{key} in the address: {what}"))
}

/// Ok for a supported key. An unknown one is named only when it resembles a known one: else it may be a piece of a
/// password whose special characters were not encoded.
fn known(key: &str) -> Result<()> {
    if SUPPORTED.contains(&key) {
        return Ok(());
    }
    if let Some((key, what)) = UNSUPPORTED.iter().find(|(name, _)| *name == key) {
        return Err(bad(key, what));
    }
    let names = SUPPORTED
        .iter()
        .copied()
        .chain(UNSUPPORTED.iter().map(|(name, _)| *name));
    Err(match super::nearest::nearest(key, names) {
        Some(near) => Error::invalid(format!("unknown key in the address: did you mean {near}?")),
        None => Error::invalid(
            "unknown key in the address (not shown, as it may be a piece of the password): in a URL the characters \
             `/?#&%` of a password are written %2F %3F %23 %26 %25; in key=value form quote it as '...'",
        ),
    })
}

fn host(value: String) -> Result<String> {
    if value.contains(',') {
        return Err(bad("host", "several hosts are not supported yet: name one"));
    }
    if value.starts_with('@') {
        return Err(bad(
            "host",
            "abstract Unix sockets are not supported: use a folder or a host name",
        ));
    }
    let plain = |char: char| char.is_alphanumeric() || ".-_:%".contains(char);
    if !value.starts_with('/') && !value.chars().all(plain) {
        return Err(bad(
            "host",
            "is not a host name, IP address or folder: is the password percent-encoded?",
        ));
    }
    Ok(value)
}

fn port(value: &str) -> Result<u16> {
    match value.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(one_host("port", value, "a number from 1 to 65535")),
    }
}

fn one_host(key: &str, value: &str, form: &str) -> Error {
    if value.contains(',')
        && value
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || b",.:".contains(&byte))
    {
        return bad(key, "several hosts are not supported yet: name one");
    }
    bad(key, &format!("must be {form}"))
}

fn number(key: &str, value: &str) -> Result<u32> {
    let unit = if key == "tcp_user_timeout" {
        "of milliseconds, without a unit"
    } else {
        "without a unit"
    };
    value
        .trim()
        .parse()
        .map_err(|_| bad(key, &format!("must be a whole number {unit}")))
}

fn positive(key: &str, value: &str) -> Result<u32> {
    // In libpq zero is the system's default, and for connect_timeout no limit: here ours are the defaults.
    match number(key, value)? {
        0 => Err(bad(key, "must be at least 1: remove it for the default")),
        value => Ok(value),
    }
}

fn ssl_mode(value: &str) -> Result<SslMode> {
    match value {
        "disable" => Ok(SslMode::Disable),
        // Without TLS both end at the plain connection.
        "allow" | "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Err(bad(
            "sslmode",
            &format!(
                "{value} needs TLS, which is not supported yet: use a server in a trusted network with sslmode=disable"
            ),
        )),
        _ => Err(bad("sslmode", "must be disable, allow or prefer")),
    }
}

fn target(value: &str) -> Result<TargetSessionAttrs> {
    match value {
        "any" => Ok(TargetSessionAttrs::Any),
        "read-write" => Ok(TargetSessionAttrs::ReadWrite),
        "read-only" => Ok(TargetSessionAttrs::ReadOnly),
        "primary" | "standby" | "prefer-standby" => Err(bad(
            "target_session_attrs",
            &format!("{value} is not supported yet: use read-write, which finds the primary, or remove it"),
        )),
        _ => Err(bad("target_session_attrs", "must be any or read-write")),
    }
}

#[cfg(test)]
mod tests;
