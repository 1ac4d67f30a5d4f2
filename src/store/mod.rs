//! The only place that holds SQL text or names a SQL function.

mod admin;
pub(crate) mod connect;
pub mod doctor;
pub(crate) mod emit;
pub(crate) mod epoch;
pub(crate) mod event;
pub(crate) mod failure;
mod key_data;
pub mod migrate;
pub(crate) mod notify;
pub(crate) mod record;
pub(crate) mod session;
pub(crate) mod tls;
pub(crate) mod warden;
pub mod watch;

pub use admin::{Admin, Pruned};
pub use epoch::EpochState;
pub use migrate::print;
