//! What the library promises: a file per promise, one binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod golden;
#[cfg(feature = "grpc")]
mod golden_grpc;
#[cfg(feature = "server")]
mod harness;
#[cfg(feature = "server")]
mod lists;
#[cfg(feature = "server")]
mod operations;
mod rooms;
#[cfg(feature = "server")]
mod tasks;
#[cfg(feature = "server")]
mod transport;
