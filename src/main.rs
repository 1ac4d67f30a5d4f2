//! The `pgevict` command.
fn main() {}
