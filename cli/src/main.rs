//! The attache program.
fn main() {}
