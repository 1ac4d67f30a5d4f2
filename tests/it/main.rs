//! Integration tests: a module per subject, on real clusters.

mod lab;
