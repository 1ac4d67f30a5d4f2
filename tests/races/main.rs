//! Races between filling and invalidating the near cache, each with its story. No database: the tests play the
//! feed.

mod echo;
mod fill;
mod flight;
mod index;
mod model;
mod share;
mod stale;
mod stress;
mod world;
