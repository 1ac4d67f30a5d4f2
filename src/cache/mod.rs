//! The near cache and its rule.
//!
//! > An entry that was read at snapshot R survives an event of transaction x if and only if R sees x.
//!
//! - [`position`]: where the feed stands, and since when that is proved ([`clock`]).
//! - [`token`]: R, taken before a read.
//! - memory: the recent events, with a floor below which no R is accepted.
//! - [`NearCache`]: entries, tag index, and the one step of checking and inserting.
//! - [`Load`]: one loader for all who miss at the same time, never shared across an event.
//!
//! Nothing here touches the database: events and cursors come through [`Sink`](crate::sink::Sink) and
//! [`Position`](position::Position), values through the caller's loader.

mod builder;
pub mod clock;
mod flight;
mod index;
mod load;
mod lookup;
mod memory;
mod near;
pub mod position;
mod prefix;
mod shared;
mod stats;
mod tally;
pub mod token;
mod xids;

pub use builder::CacheBuilder;
pub use load::{Load, Loaded};
pub use lookup::{Answer, Freshness, Lookup};
pub use near::{NearCache, Stored};
pub use shared::Shared;
pub use stats::Stats;
pub use token::FillToken;
