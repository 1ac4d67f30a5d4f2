//! Integration tests: a module per subject, on real clusters.

#[path = "../support/mod.rs"]
mod support;

mod address;
mod instance;
mod key_text;
mod lab;
mod snapshot;
