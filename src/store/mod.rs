//! The only place that holds SQL text or names a SQL function.

mod failure;
pub mod migrate;
pub mod watch;
