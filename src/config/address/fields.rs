//! The keys of an address: which there are, what they may hold, and what stands for those that are left out.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation, TargetSessionAttrs};

use super::password::Table;
use super::tls::{self, Mode};
use super::{Address, bad, servers, split};
use crate::config::nearest::nearest;
use crate::error::{Error, Result};

const KERBEROS: &str = "Kerberos is not supported: remove it";
const NOT_YET: &str = "is not supported yet: remove it";
const SERVICE: &str = "service files are not supported: write the service's host, user and dbname";

/// Keys of libpq that are not supported, and what to do about it.
pub(super) const UNSUPPORTED: &[(&str, &str)] = &[
    ("gssdelegation", KERBEROS),
    ("gssencmode", KERBEROS),
    ("gsslib", KERBEROS),
    ("krbsrvname", KERBEROS),
    ("min_protocol_version", NOT_YET),
    ("max_protocol_version", NOT_YET),
    ("replication", "is not supported: this needs an ordinary session"),
    ("require_auth", NOT_YET),
    ("requirepeer", NOT_YET),
    ("service", SERVICE),
    ("servicefile", SERVICE),
    ("ssl_max_protocol_version", NOT_YET),
    (
        "ssl_min_protocol_version",
        "is not supported: TLS is 1.2 or 1.3 anyway; remove it",
    ),
    ("sslcertmode", NOT_YET),
    ("sslcrl", NOT_YET),
    ("sslcrldir", NOT_YET),
    (
        "sslpassword",
        "encrypted keys are not supported: give a key without a password",
    ),
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
    "passfile",
    "password",
    "port",
    "sslcert",
    "sslcompression",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Variables that stand for keys that are left out.
const VARIABLES: &[(&str, &str)] = &[
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGUSER", "user"),
    ("PGDATABASE", "dbname"),
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
];

#[derive(Default)]
pub(super) struct Fields {
    /// Keys that the address sets.
    given: Vec<String>,
    user: Option<String>,
    password: Option<String>,
    passfile: Option<String>,
    hosts: Vec<Option<String>>,
    addrs: Vec<Option<IpAddr>>,
    ports: Vec<Option<u16>>,
    dbname: Option<String>,
    options: Option<String>,
    application_name: Option<String>,
    fallback_application_name: Option<String>,
    tls: tls::Said,
    channel_binding: Option<ChannelBinding>,
    connect_timeout: Option<u32>,
    keepalives: Option<bool>,
    keepalives_idle: Option<u32>,
    keepalives_interval: Option<u32>,
    keepalives_count: Option<u32>,
    tcp_user_timeout_ms: Option<u32>,
}

impl Fields {
    /// Takes a key of the address.
    pub(super) fn set(&mut self, key: &str, value: String) -> Result<()> {
        known(key)?;
        // libpq takes an empty value for the default.
        if value.is_empty() {
            return Ok(());
        }
        self.given.push(key.to_owned());
        self.put(key, value).map_err(|what| bad(key, &what))
    }

    /// Takes the variables of what the address leaves out.
    pub(super) fn fill(&mut self, env: impl Fn(&str) -> Option<String>) -> Result<()> {
        let given = |key: &str| self.given.iter().any(|given| given == key);
        let placed = given("host") || given("hostaddr");
        let left_out = |key: &str| match key {
            "host" => !placed,
            key => !given(key),
        };
        if !placed && env("PGSERVICE").is_some() {
            return Err(Error::invalid(format!("PGSERVICE: {SERVICE}")));
        }
        let open: Vec<_> = VARIABLES.iter().filter(|(_, key)| left_out(key)).collect();
        for (name, key) in open {
            if let Some(value) = env(name) {
                self.put(key, value)
                    .map_err(|what| Error::invalid(format!("{name}: {what}")))?;
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &str, value: String) -> Result<(), String> {
        if value.contains('\0') {
            return Err("holds a zero byte".to_owned());
        }
        match key {
            "user" => self.user = Some(value),
            "password" => self.password = Some(value),
            "passfile" => self.passfile = Some(value),
            "host" => self.hosts = list(&value, host)?,
            "hostaddr" => {
                self.addrs = list(&value, |addr| {
                    addr.parse().map_err(|_| "must be an IP address".to_owned())
                })?;
            }
            "port" => self.ports = list(&value, port)?,
            "dbname" => self.dbname = Some(value),
            "options" => self.options = Some(value),
            "application_name" => self.application_name = Some(value),
            "fallback_application_name" => self.fallback_application_name = Some(value),
            "client_encoding" => one_of(&value.to_lowercase(), &["utf8", "utf-8", "unicode", "auto"])
                .map_err(|_| "must be UTF8: remove it")?,
            "connect_timeout" => self.connect_timeout = Some(positive(key, &value)?),
            "keepalives" => self.keepalives = Some(number(key, &value)? != 0),
            "keepalives_idle" => self.keepalives_idle = Some(positive(key, &value)?),
            "keepalives_interval" => self.keepalives_interval = Some(positive(key, &value)?),
            "keepalives_count" => self.keepalives_count = Some(positive(key, &value)?),
            "tcp_user_timeout" => self.tcp_user_timeout_ms = Some(number(key, &value)?),
            "sslmode" => self.tls.mode = Some(tls::mode(&value)?),
            "sslrootcert" => self.tls.root = Some(value),
            "sslcert" => self.tls.cert = Some(value),
            "sslkey" => self.tls.key = Some(value),
            "sslsni" => self.tls.sni = Some(number(key, &value)? != 0),
            "sslcompression" => one_of(&value, &["0"])?,
            "sslnegotiation" => {
                one_of(&value, &["postgres", "direct"])?;
                self.tls.direct = value == "direct";
            }
            "channel_binding" => {
                self.channel_binding = Some(match value.as_str() {
                    "disable" => ChannelBinding::Disable,
                    "prefer" => ChannelBinding::Prefer,
                    "require" => ChannelBinding::Require,
                    _ => return Err("must be disable, prefer or require".to_owned()),
                });
                self.tls.bound = value == "require";
            }
            "load_balance_hosts" => one_of(&value, &["disable", "random"])?,
            "target_session_attrs" => target(&value)?,
            // Checked before.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn finish(self, env: impl Fn(&str) -> Option<String>) -> Result<Address> {
        let user = self.user.or_else(|| env("USER")).or_else(|| env("LOGNAME"));
        let dbname = self.dbname.or_else(|| user.clone());
        let servers =
            servers::pair(&self.hosts, &self.addrs, &self.ports).map_err(|(key, what)| bad(key, &what))?;
        let direct = self.tls.direct;
        let own_password = self.given.iter().any(|key| key == "password");
        let home = env("HOME").map(PathBuf::from);
        let named = self.passfile.is_some();
        let passfile = self.passfile.map(PathBuf::from);
        let passfile = passfile.or_else(|| home.as_ref().map(|home| home.join(".pgpass")));
        let table = passfile.map(|file| Table { file, named });
        let tls = self.tls.finish(home).map_err(|(key, what)| bad(key, &what))?;

        let mut base = tokio_postgres::Config::new();
        base.ssl_mode(match tls.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Allow | Mode::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        });
        if direct {
            base.ssl_negotiation(SslNegotiation::Direct);
        }
        base.channel_binding(self.channel_binding.unwrap_or(ChannelBinding::Prefer));
        if let Some(user) = &user {
            base.user(user);
        }
        if let Some(dbname) = &dbname {
            base.dbname(dbname);
        }
        if let Some(password) = self.password {
            base.password(password);
        }
        if let Some(options) = self.options {
            base.options(options);
        }
        let name = self.application_name.or(self.fallback_application_name);
        base.application_name(name.as_deref().unwrap_or("pgevict"));

        let whole = |seconds: Option<u32>, default| Duration::from_secs(seconds.unwrap_or(default).into());
        if self.connect_timeout.is_some() {
            base.connect_timeout(whole(self.connect_timeout, 0));
        }
        base.keepalives(self.keepalives.unwrap_or(true));
        base.keepalives_idle(whole(self.keepalives_idle, 10));
        base.keepalives_interval(whole(self.keepalives_interval, 5));
        base.keepalives_retries(self.keepalives_count.unwrap_or(3));
        // 0 stands for the default of the system, as in libpq.
        let ms = self.tcp_user_timeout_ms.unwrap_or(20_000);
        if ms > 0 {
            base.tcp_user_timeout(Duration::from_millis(ms.into()));
        }

        let mut config = base.clone();
        // The library pairs its lists by place: addresses for all servers, or for none.
        let all_placed = servers.iter().all(|server| server.addr.is_some());
        for server in &servers {
            let addr = server.addr.filter(|_| all_placed);
            servers::Server {
                addr,
                ..server.clone()
            }
            .add_to(&mut config);
        }
        if servers.len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let shown = split::shown(user.as_deref(), &servers, dbname.as_deref());
        Ok(Address {
            base,
            config,
            servers,
            tls,
            own_password,
            password_file: None,
            table,
            shown,
        })
    }
}

/// Ok for a supported key. An unknown one is named only when it resembles a known one: else it may be a piece of a
/// password whose special characters were not encoded.
pub(super) fn known(key: &str) -> Result<()> {
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
    Err(match nearest(key, names) {
        Some(near) => Error::invalid(format!("unknown key in the address: did you mean {near}?")),
        None => Error::invalid(
            "unknown key in the address (not shown, as it may be a piece of the password): in a URL the characters \
             `/?#&%` of a password are written %2F %3F %23 %26 %25; in key=value form quote it as '...'",
        ),
    })
}

/// The items between commas; an empty one is `None`.
fn list<T>(value: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<Option<T>>, String> {
    let item = |item: &str| match item.trim() {
        "" => Ok(None),
        item => read(item).map(Some),
    };
    value.split(',').map(item).collect()
}

fn host(value: &str) -> Result<String, String> {
    if value.starts_with('@') {
        return Err("abstract Unix sockets are not supported: use a folder or a host name".to_owned());
    }
    let plain = |char: char| char.is_alphanumeric() || ".-_:%".contains(char);
    if !value.starts_with('/') && !value.chars().all(plain) {
        return Err("is not a host name, IP address or folder: is the password percent-encoded?".to_owned());
    }
    Ok(value.to_owned())
}

fn port(value: &str) -> Result<u16, String> {
    match value.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err("must be a number from 1 to 65535".to_owned()),
    }
}

fn number(key: &str, value: &str) -> Result<u32, String> {
    let unit = if key == "tcp_user_timeout" {
        "of milliseconds, without a unit"
    } else {
        "without a unit"
    };
    value
        .trim()
        .parse()
        .map_err(|_| format!("must be a whole number {unit}"))
}

fn positive(key: &str, value: &str) -> Result<u32, String> {
    // In libpq zero is the system's default, and for connect_timeout no limit: here ours are the defaults.
    match number(key, value)? {
        0 => Err("must be at least 1: remove it for the default".to_owned()),
        value => Ok(value),
    }
}

fn one_of(value: &str, allowed: &[&str]) -> Result<(), String> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(format!("must be {}", allowed.join(" or ")))
}

/// Whichever is accepted: the primary is what is looked for.
fn target(value: &str) -> Result<(), String> {
    match value {
        "primary" | "read-write" | "any" => Ok(()),
        "standby" | "prefer-standby" | "read-only" => Err(format!(
            "{value} is not supported: pgevict works on the primary only; use primary"
        )),
        _ => Err("must be primary or read-write".to_owned()),
    }
}
