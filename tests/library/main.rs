//! What the library promises: a file per promise, one binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod harness;
mod operations;
mod rooms;
mod transport;
