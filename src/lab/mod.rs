//! Throwaway PostgreSQL clusters and a network that fails on demand.
//!
//! The demo, the integration tests and the benches all run on this, so what they show is PostgreSQL's own
//! behaviour over real sockets. A [`Cluster`] is private to its owner, takes about a fifth of a second to
//! start and disappears when dropped; a [`Relay`] stands between a client and a cluster and freezes, cuts,
//! delays or refuses.
//!
//! Nothing here belongs into a service: durability is switched off, every local user may connect.

mod binaries;
mod bouncer;
mod cluster;
mod home;
mod keeper;
mod options;
mod owner;
mod processes;
mod relay;
mod template;

pub use binaries::Binaries;
pub use bouncer::{Bouncer, PoolMode};
pub use cluster::Cluster;
pub use options::{ClusterOptions, StopMode};
pub use relay::Relay;
