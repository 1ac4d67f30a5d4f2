//! From what the driver and the server report to [`Error`], with the cure where there is one.

use tokio_postgres::error::{DbError, SqlState};

use std::error::Error as _;

use crate::error::Error;

/// The error of one step, such as `watching products`; the server's own message and hint are part of it.
pub(crate) fn failure(doing: &str, error: tokio_postgres::Error) -> Error {
    let Some(server) = error.as_db_error() else {
        if error.is_closed() {
            return Error::unreachable(format!("{doing}: the connection is closed")).because(error);
        }
        let cause = error
            .source()
            .map_or_else(|| error.to_string(), |cause| cause.to_string());
        let build: Build = match is_of_the_address(&error) {
            true => Error::refused,
            false => Error::unreachable,
        };
        return build(format!("{doing}: {cause}")).because(error);
    };
    let (build, cure) = class_of(server);
    let message = match server.hint().or(cure) {
        Some(hint) => format!("{doing}: {} ({hint})", server.message()),
        None => format!("{doing}: {}", server.message()),
    };
    build(message).because(error)
}

/// True when a server refused us for who we are: user, password, certificate, rules of access.
pub(crate) fn was_turned_away(error: &Error) -> bool {
    error.sqlstate().is_some_and(|code| code.starts_with("28"))
}

/// True when a lock was not to be had in time: the transaction was rolled back and may be tried again.
pub(crate) fn is_lock_timeout(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
        || error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

/// True when the driver gave up because of what the address says or lacks, such as a password. It offers no predicate.
fn is_of_the_address(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    text.starts_with("invalid configuration") || text.starts_with("authentication error")
}

type Build = fn(String) -> Error;

fn class_of(server: &DbError) -> (Build, Option<&'static str>) {
    match server.code().code() {
        "55P03" | "57014" | "25P03" | "25P04" => (Error::timeout, None),
        "42501" => (
            Error::refused,
            Some(
                "pgevict_emitter emits, pgevict_reader reads, pgevict_instance runs instances, pgevict_admin administrates and \
                 watches tables of its own; who migrates must be allowed to create the schema",
            ),
        ),
        "25006" | "25000" | "25001" => (Error::refused, None),
        "28P01" | "28000" => (Error::refused, Some("check user and password of the address")),
        "3D000" => (Error::invalid, Some("check the database name of the address")),
        // A missing object that bears our name: nothing, or something else, is installed.
        "42P01" | "3F000" | "42883" | "42703" | "42704" if server.message().contains("pgevict") => (
            Error::refused,
            Some("pgevict is not installed in this database, or by another version: run `pgevict migrate`"),
        ),
        code => match &code[..2] {
            // Wrong arguments, names and types; what is not supported.
            "22" | "42" | "0A" => (Error::invalid, None),
            "08" | "57" | "53" => (Error::unreachable, None),
            "28" | "3D" | "55" => (Error::refused, None),
            _ => (Error::database, None),
        },
    }
}
