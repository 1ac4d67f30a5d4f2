//! Integration tests: a module per subject, on real clusters.

#[path = "../support/mod.rs"]
mod support;

mod emit;
mod lab;
mod migrate;
mod watch;
mod watch_install;
