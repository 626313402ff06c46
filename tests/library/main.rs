//! What the library promises: a file per promise, one binary.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(feature = "server")]
mod ambiguous;
mod attacks;
#[cfg(feature = "server")]
mod besieged;
mod bindings;
#[cfg(all(feature = "client", feature = "server"))]
mod client;
#[cfg(all(feature = "client", feature = "sqlite"))]
mod crash;
#[cfg(feature = "server")]
mod crowds;
mod dialects;
#[cfg(all(feature = "client", feature = "server"))]
mod everywhere;
#[cfg(feature = "server")]
mod faults;
mod fold;
mod generate;
mod golden;
#[cfg(feature = "grpc")]
mod golden_grpc;
#[cfg(all(feature = "grpc", feature = "server"))]
mod grpc;
#[cfg(feature = "server")]
mod harness;
#[cfg(feature = "server")]
mod hostile;
#[cfg(feature = "grpc")]
mod judges;
#[cfg(all(feature = "jwt", feature = "tls"))]
mod jwt;
mod lossy;
#[cfg(feature = "server")]
mod many;
#[cfg(feature = "server")]
mod operations;
#[cfg(feature = "grpc")]
mod proto;
#[cfg(all(feature = "jws", feature = "sqlite"))]
mod pushing;
mod refusals;
#[cfg(all(feature = "client", feature = "server"))]
mod reloading;
#[cfg(feature = "server")]
mod resuming;
mod robust;
mod rooms;
mod roundtrip;
#[cfg(all(feature = "client", feature = "server"))]
mod scenarios;
mod shape;
#[cfg(feature = "server")]
mod streaming;
#[cfg(feature = "server")]
mod tasks;
#[cfg(all(feature = "server", feature = "tls"))]
mod tls;
#[cfg(feature = "server")]
mod tools;
#[cfg(all(feature = "grpc", feature = "otel"))]
mod trace;
#[cfg(feature = "server")]
mod transport;
#[cfg(feature = "server")]
mod versions;
