//! The near cache and its rule.

pub mod position;
