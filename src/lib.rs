//! PostgreSQL tells every cache, within milliseconds of the commit, what went stale, and no cache ever misses it.
#![warn(missing_docs)]

pub mod cache;
pub mod config;
pub mod error;
pub mod event;
#[cfg(feature = "lab")]
pub mod lab;
pub mod sink;
pub mod snapshot;
pub mod store;

pub use error::{Error, Result};
