//! PostgreSQL tells every cache, within milliseconds of the commit, what went stale, and no cache ever misses it.
#![warn(missing_docs)]

pub mod cache;
pub mod config;
mod emit;
pub mod error;
pub mod event;
mod feed;
mod instance;
#[cfg(feature = "lab")]
pub mod lab;
pub mod sink;
pub mod snapshot;
mod status;
pub mod store;
mod wake;

pub use config::Config;
pub use emit::{Emitted, EmittingTransaction};
pub use error::{Error, Result};
pub use event::{Event, Key, LoggedEvent, Prefix, Tag};
pub use instance::{Builder, Pgevict};
pub use sink::{Delivery, Reset, Subscription};
pub use status::{Cause, Listening, Status};
