//! The `memledger` command.
fn main() {}
