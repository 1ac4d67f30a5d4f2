//! Races between filling and invalidating the near cache, each with its story. No database: the tests play the
//! feed.
#![allow(clippy::disallowed_methods, reason = "plain threads, no runtime")]

mod attached;
mod echo;
mod fill;
mod flight;
mod index;
mod kinds;
mod model;
mod share;
mod stale;
mod stress;
mod world;
