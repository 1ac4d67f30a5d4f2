//! The walk over the servers of an address, to the first that is the primary.
//!
//! The client library can walk too, but a host that accepts and says nothing holds it for ever, and it knows
//! neither certificates nor libpq's fallbacks. Here every attempt has its share of the deadline: what is left,
//! divided by the attempts that are left.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::net::lookup_host;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Connection, Socket};

use crate::config::{Address, Mode, Password, Server};
use crate::error::{Error, Result};
use crate::store::failure::{failure, was_turned_away};
use crate::store::tls::{self, MakeTls, Stream};

/// The socket side of a session; nothing moves unless it is driven.
pub(crate) type Driver = Connection<Socket, Stream>;

/// What is read anew for each connect: keys and passwords change while a process lives.
struct Secrets {
    password: Password,
    tls: MakeTls,
}

/// Connects to the first server that is the primary; the caller drives the connection. A lone server is not asked
/// what it is: whoever prepares the session asks.
pub(crate) async fn connect(address: &Address, name: &str, within: Duration) -> Result<(Client, Driver)> {
    let deadline = Instant::now() + within;
    let secrets = secrets(address, within).await?;
    let servers = address.servers();
    let mut failures: Vec<Error> = Vec::new();
    for (n, server) in servers.iter().enumerate() {
        let behind = servers.len() - n - 1;
        let doing = format!("connecting to {}", address.redacted_at(server));
        let places = match places(server, &doing, share(deadline, behind + 1)).await {
            Ok(places) => places,
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        let mut here = Vec::new();
        for (m, ip) in places.iter().enumerate() {
            let attempts = behind + places.len() - m;
            let share = share(deadline, attempts);
            let share = address.attempt_timeout().map_or(share, |limit| limit.min(share));
            let mut config = address.at(server, *ip);
            config.application_name(name).connect_timeout(share);
            if let Some(password) = address.password_at(&secrets.password, server) {
                config.password(password);
            }
            let is_alone = servers.len() * places.len() == 1;
            let attempt = async {
                let ways = ways(server, address.tls().mode);
                let (client, mut driver) = dial(config, &secrets.tls, ways)
                    .await
                    .map_err(|error| tls::failure(&doing, error))?;
                if !is_alone && is_standby(&client, &mut driver, &doing).await? {
                    return Err(standby(&address.redacted_at(server)));
                }
                Ok((client, driver))
            };
            match timeout(share, attempt).await {
                Ok(Ok(connected)) => return Ok(connected),
                // As libpq does: who is turned away does not ask the next one.
                Ok(Err(error)) if error.is_invalid() || was_turned_away(&error) => return Err(error),
                Ok(Err(error)) => here.push(error),
                Err(_) => here.push(silent(&doing, share)),
            }
        }
        failures.extend(of_one_name(here));
    }
    Err(sum_up(failures))
}

/// The server cannot be used: it is a standby.
pub(crate) fn standby(shown: &str) -> Error {
    Error::standby(format!("{shown} is a standby: point the address at the primary"))
}

async fn secrets(address: &Address, within: Duration) -> Result<Secrets> {
    let copy = address.clone();
    let read = tokio::task::spawn_blocking(move || {
        Ok(Secrets {
            password: copy.read_password()?,
            tls: match copy.servers().iter().all(Server::is_socket) {
                true => tls::none(),
                false => tls::maker(copy.tls()),
            }?,
        })
    });
    match timeout(within, read).await {
        Ok(Ok(secrets)) => secrets,
        Ok(Err(error)) => Err(Error::unreachable("reading the files of the address failed").because(error)),
        Err(_) => Err(silent("reading the files of the address", within)),
    }
}

/// Time for the next attempt when there are this many.
fn share(deadline: Instant, attempts: usize) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    // Rounded up, for messages; never zero.
    let ms = left.as_millis() as u64 / attempts.max(1) as u64;
    Duration::from_millis((ms / 10 + 1) * 10)
}

/// Where the server is: its IP addresses, or `None` for a socket or an address that is given.
async fn places(server: &Server, doing: &str, within: Duration) -> Result<Vec<Option<IpAddr>>> {
    if server.is_socket() || server.addr.is_some() {
        return Ok(vec![None]);
    }
    let found = match timeout(within, lookup_host((server.host.as_str(), server.port))).await {
        Ok(found) => found,
        Err(_) => return Err(silent(&format!("{doing}: looking up the host"), within)),
    };
    let unknown = || Error::unreachable(format!("{doing}: the host name is not known"));
    let mut places: Vec<_> = found
        .map_err(|error| unknown().because(error))?
        .map(|place| Some(place.ip()))
        .collect();
    let mut seen = Vec::new();
    places.retain(|place| {
        let is_new = !seen.contains(place);
        seen.push(*place);
        is_new
    });
    if places.is_empty() {
        return Err(unknown());
    }
    Ok(places)
}

/// How to try one server, in order: `allow` and `prefer` have a second way.
fn ways(server: &Server, mode: Mode) -> &'static [SslMode] {
    match mode {
        _ if server.is_socket() => &[SslMode::Disable],
        _ if !tls::AVAILABLE => &[SslMode::Disable],
        Mode::Disable => &[SslMode::Disable],
        Mode::Allow => &[SslMode::Disable, SslMode::Require],
        Mode::Prefer => &[SslMode::Prefer, SslMode::Disable],
        Mode::Require | Mode::VerifyCa | Mode::VerifyFull => &[SslMode::Require],
    }
}

#[cfg_attr(
    not(feature = "tls"),
    expect(clippy::clone_on_copy, reason = "without the feature it is a unit")
)]
async fn dial(
    mut config: tokio_postgres::Config,
    tls: &MakeTls,
    ways: &[SslMode],
) -> Result<(Client, Driver), tokio_postgres::Error> {
    let (last, first) = match ways {
        [first, last] => (last, Some(first)),
        [last, ..] => (last, None),
        [] => (&SslMode::Disable, None),
    };
    if let Some(first) = first {
        match config.ssl_mode(*first).connect(tls.clone()).await {
            Err(error) if tls::may_try_another_way(&error) => {
                tracing::debug!(%error, ?first, ?last, "trying the other way of sslmode");
            }
            done => return done,
        }
    }
    config.ssl_mode(*last).connect(tls.clone()).await
}

/// Asks before anybody drives the connection. Notices that come meanwhile are dropped.
async fn is_standby(client: &Client, driver: &mut Driver, doing: &str) -> Result<bool> {
    let mut asked = pin!(client.query_typed_one("select pg_catalog.pg_is_in_recovery()", &[]));
    let driven = async { while let Some(Ok(_)) = poll_fn(|cx| driver.poll_message(cx)).await {} };
    let answer = tokio::select! {
        answer = &mut asked => answer,
        // The end of the connection is the question's error.
        () = driven => asked.await,
    };
    answer
        .map(|row| row.get(0))
        .map_err(|error| failure(doing, error))
}

fn silent(doing: &str, within: Duration) -> Error {
    Error::unreachable(format!(
        "{doing}: no answer within {}",
        humantime::format_duration(within)
    ))
}

fn rank(error: &Error) -> u8 {
    match error {
        error if error.is_unreachable() || error.is_timeout() => 0,
        error if error.is_standby() => 1,
        _ => 2,
    }
}

/// What one name came to: the answer of an address that gave one. That nobody listens on another, such as the IPv6
/// one of `localhost`, says nothing.
fn of_one_name(failures: Vec<Error>) -> Option<Error> {
    failures.into_iter().max_by_key(|error| match rank(error) {
        // A standby may be promoted.
        1 => 3,
        rank => rank,
    })
}

/// One error of all: what waiting may cure comes first, as the primary may be one of those.
fn sum_up(mut failures: Vec<Error>) -> Error {
    let mut messages: Vec<String> = Vec::new();
    for failure in &failures {
        let message = failure.to_string();
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    failures.sort_by_key(rank);
    let all = messages.join("; ");
    match failures.into_iter().next() {
        None => Error::unreachable("the address names no server"),
        Some(only) if messages.len() == 1 => only,
        Some(first) if rank(&first) == 0 => Error::unreachable(all).because(first),
        Some(first) if first.is_standby() => Error::standby(all).because(first),
        Some(first) => Error::refused(all).because(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standby() -> Error {
        super::standby("a")
    }

    fn down() -> Error {
        Error::unreachable("b: down")
    }

    fn refused() -> Error {
        Error::refused("c: refused")
    }

    #[test]
    fn what_may_heal_by_waiting_is_what_all_came_to() {
        let all = sum_up(vec![standby(), down(), refused()]);
        assert!(all.is_unreachable());
        assert_eq!(
            all.to_string(),
            "a is a standby: point the address at the primary; b: down; c: refused"
        );
        assert!(sum_up(vec![refused(), standby()]).is_standby());
        assert!(sum_up(vec![standby(), standby()]).is_standby());
        let one = sum_up(vec![refused(), refused()]);
        assert!(one.is_refused() && one.to_string() == "c: refused");
    }

    #[test]
    fn a_name_is_what_its_answering_address_says() {
        assert!(of_one_name(vec![down(), standby()]).unwrap().is_standby());
        assert!(of_one_name(vec![refused(), down()]).unwrap().is_refused());
        assert!(of_one_name(vec![refused(), standby()]).unwrap().is_standby());
        assert!(of_one_name(vec![down(), down()]).unwrap().is_unreachable());
    }
}
