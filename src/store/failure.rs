//! What an error of the driver or the server means to the caller.

use tokio_postgres::error::{DbError, SqlState};

use crate::error::Error;

/// The error of one step, such as `watching products`; the server's own message and hint are part of it.
pub(crate) fn failed(doing: &str, error: tokio_postgres::Error) -> Error {
    let Some(server) = error.as_db_error() else {
        return Error::unreachable(format!("{doing}: the connection failed")).because(error);
    };
    let message = match server.hint() {
        Some(hint) => format!("{doing}: {} ({hint})", server.message()),
        None => format!("{doing}: {}", server.message()),
    };
    let build = class_of(server);
    build(message).because(error)
}

/// True when a lock was not to be had in time: the transaction was rolled back and may be tried again.
pub(crate) fn is_lock_timeout(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
        || error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

fn class_of(server: &DbError) -> fn(String) -> Error {
    let code = server.code().code();
    match code {
        "55P03" | "57014" | "25P03" | "25P04" => Error::timeout,
        "42501" | "25006" | "25000" | "25001" => Error::refused,
        // Wrong arguments, names and types; what is not supported.
        _ => match &code[..2] {
            "22" | "42" | "0A" => Error::invalid,
            "08" | "57" | "53" => Error::unreachable,
            "28" | "3D" | "55" => Error::refused,
            _ => Error::database,
        },
    }
}
