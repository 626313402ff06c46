//! Integration tests of the library, one binary, folders by subject.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(all(feature = "client", feature = "server"))]
mod client;
#[cfg(all(feature = "client", feature = "postgres", feature = "server"))]
mod cluster;
#[cfg(feature = "server")]
mod harness;
mod layering;
mod load;
#[cfg(feature = "grpc")]
mod peers;
#[cfg(all(feature = "client", feature = "server"))]
mod scenarios;
mod security;
mod server;
mod store;
mod strategies;
mod wire;
