//! The feed of one instance: wake or poll, fetch, apply, move the cursor. In memory; starts at the head.
//!
//! ```text
//!            +--------- wake, poll, sync, LISTEN (re)established
//!            v
//!   judge <- fetch ---- no epoch ----> establish --+
//!     |       ^  ^                                 |
//!     |       |  +-- heartbeat row gone: register--+
//!     |       +----- next page of the same target
//!     |
//!     +-- good ---> apply to every sink, THEN publish the cursor (last page only)
//!     +-- reset --> withdraw the position, find the head, reset every sink, THEN publish that head
//! ```
//!
//! Inside an epoch a lost session changes nothing: the next one goes on from the same cursor.

mod driver;
mod pace;
mod sync;
mod tally;
mod verdict;
mod warden;
mod watches;

pub(crate) use driver::{Feed, Shared};
pub(crate) use sync::Sync;
pub(crate) use warden::Warden;
