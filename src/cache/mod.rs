//! The near cache and its rule.
//!
//! > An entry that was read at snapshot R survives an event of transaction x if and only if R sees x.
//!
//! - [`position`]: where the feed stands, and since when that is proved ([`clock`]).
//! - [`token`]: R, taken before a read.
//! - [`Mark`]: R of a read made elsewhere, as the server says.
//! - memory: the recent events, with a floor below which no R is accepted.
//! - [`NearCache`]: entries, tag index, and the one step of checking and inserting.
//! - [`Attached`]: a cache of another kind under the same rule; [`Evict`] is what it must be able to do.
//! - [`Load`]: one loader for all who miss at the same time, never shared across an event.
//!
//! Nothing here touches the database: events and cursors come through [`Sink`](crate::sink::Sink) and
//! [`Position`](position::Position), values through the caller's loader.

mod attached;
mod builder;
pub mod clock;
mod evict;
mod flight;
mod index;
mod load;
mod lookup;
mod mark;
mod memory;
#[cfg(feature = "moka")]
mod moka;
mod near;
pub mod position;
mod prefix;
mod records;
mod shared;
mod stats;
mod tally;
pub mod token;
mod trail;
mod xids;

pub use attached::Attached;
pub use builder::CacheBuilder;
pub use evict::Evict;
pub use load::{Load, Loaded};
pub use lookup::{Answer, Freshness, Lookup};
pub use mark::Mark;
pub use near::NearCache;
pub use shared::{Shared, Stored};
pub use stats::Stats;
pub use token::FillToken;
