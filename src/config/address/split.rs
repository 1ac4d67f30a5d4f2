//! Takes an address apart into keys and values, and puts the printable part together. No message holds a value.

use std::fmt::Write;

use super::Server;
use crate::error::{Error, Result};

/// The keys and values of either form, decoded, in order.
pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let text = text.trim();
    for scheme in ["postgresql://", "postgres://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            return url(rest);
        }
    }
    if text
        .split(['=', ' ', '\''])
        .next()
        .is_some_and(|head| head.contains("://"))
    {
        return Err(Error::invalid(
            "the address must begin with postgresql:// or be of the form host=... user=...",
        ));
    }
    key_value(text)
}

fn url(rest: &str) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut add = |key: &str, value: &str| -> Result<()> {
        if !value.is_empty() {
            pairs.push((key.to_owned(), decode(key, value)?));
        }
        Ok(())
    };
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A host holds no @, so the last one ends the password, encoded or not.
    let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if who.is_empty() && rest.contains('@') && !rest.starts_with("/?") {
        return Err(Error::invalid(
            "the address has an @ behind its host: in a user name or password write / ? # as %2F %3F %23",
        ));
    }
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    add("user", user)?;
    add("password", password)?;
    let mut lists = (Vec::new(), Vec::new());
    for server in hosts.split(',') {
        let (host, port) = host_and_port(server)?;
        lists.0.push(host);
        lists.1.push(port);
    }
    if lists.0.len() > 1 || !lists.0[0].is_empty() {
        add("host", &lists.0.join(","))?;
    }
    if lists.1.iter().any(|port| !port.is_empty()) {
        add("port", &lists.1.join(","))?;
    }
    if let Some(at) = rest.find('#') {
        return Err(Error::invalid(match rest[..at].is_empty() {
            true => "the address has a # behind its host: in a password write it as %23",
            false => "the address has a # in it: write it as %23",
        }));
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    add("dbname", path.strip_prefix('/').unwrap_or(path))?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Error::invalid(
                "a parameter of the address has no `=` (not shown, it may be a secret)",
            ));
        };
        let key = decode("parameter", key)?;
        let value = decode("parameter", value)?;
        match (key.as_str(), value.as_str()) {
            // As JDBC and libpq write it.
            ("ssl", "true") => pairs.push(("sslmode".to_owned(), "require".to_owned())),
            _ => pairs.push((key, value)),
        }
    }
    Ok(pairs)
}

/// `host`, `host:port`, `[::1]:port`.
fn host_and_port(hosts: &str) -> Result<(&str, &str)> {
    if let Some(rest) = hosts.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(|| {
            Error::invalid("host in the address: an IPv6 address without its closing bracket")
        })?;
        return match port.strip_prefix(':') {
            Some(port) => Ok((host, port)),
            None if port.is_empty() => Ok((host, "")),
            None => Err(Error::invalid(
                "host in the address: only a :port may follow the closing bracket",
            )),
        };
    }
    let (host, port) = hosts.split_once(':').unwrap_or((hosts, ""));
    if port.contains(':') {
        return Err(Error::invalid(
            "host in the address: an IPv6 address needs brackets, as in [::1]:5432",
        ));
    }
    Ok((host, port))
}

fn decode(key: &str, text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let hex = |byte: u8| {
            char::from(byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let digits = tail
            .first_chunk::<2>()
            .and_then(|[high, low]| Some(hex(*high)? * 16 + hex(*low)?));
        let Some(byte) = digits else {
            return Err(super::bad(
                key,
                "holds a % that two hex digits do not follow: write % as %25",
            ));
        };
        bytes.push(byte);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| super::bad(key, "does not decode to UTF-8"))
}

/// `key = value key='quoted \' value'`.
fn key_value(text: &str) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, tail) = rest.split_once('=').ok_or_else(|| {
            Error::invalid(
                "the address holds a word without `=` (not shown, it may be a piece of the password): a value with \
                 spaces is written in quotes, as in password='a b'",
            )
        })?;
        let key = key.trim_end();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(Error::invalid(
                "the address holds a word without `=` (not shown, it may be a piece of the password): a value with \
                 spaces is written in quotes, as in password='a b'",
            ));
        }
        let (value, tail) = value(key, tail.trim_start())?;
        pairs.push((key.to_owned(), value));
        rest = tail.trim_start();
    }
    Ok(pairs)
}

fn value<'a>(key: &str, text: &'a str) -> Result<(String, &'a str)> {
    let (quoted, text) = match text.strip_prefix('\'') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => value.extend(chars.next().map(|(_, char)| char)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            char if !quoted && char.is_whitespace() => return Ok((value, &text[at..])),
            char => value.push(char),
        }
    }
    if quoted {
        // The key may be a piece of a password too, but then it resembles no known one.
        super::fields::known(key)?;
        return Err(super::bad(key, "its closing quote is missing"));
    }
    Ok((value, ""))
}

/// `postgresql://user@host:port,host:port/dbname`, encoded so that it can be pasted; a socket folder as `%2Frun...`.
pub(super) fn shown(user: Option<&str>, servers: &[Server], dbname: Option<&str>) -> String {
    let mut text = String::from("postgresql://");
    if let Some(user) = user {
        encode(user, &mut text);
        text.push('@');
    }
    for (n, Server { host, port, .. }) in servers.iter().enumerate() {
        if n > 0 {
            text.push(',');
        }
        match host.contains(':') && !host.starts_with('/') {
            true => text.extend(["[", host, "]"]),
            false => encode(host, &mut text),
        }
        // Writing to a String never fails.
        let _ = write!(text, ":{port}");
    }
    if let Some(dbname) = dbname {
        text.push('/');
        encode(dbname, &mut text);
    }
    text
}

fn encode(value: &str, text: &mut String) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a String never fails.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}
