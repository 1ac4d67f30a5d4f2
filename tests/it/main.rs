//! Integration tests: a module per subject, on real clusters.

mod address;
mod key_text;
mod lab;
mod snapshot;
