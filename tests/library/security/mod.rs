//! Attacks: hostile input, hostile clients, authentication, and the coverage of the test-case catalogue.

#[cfg(feature = "server")]
pub(crate) mod ambiguous_requests;
#[cfg(feature = "server")]
pub(crate) mod connection_limits;
pub(crate) mod coverage;
#[cfg(feature = "server")]
pub(crate) mod credential_end;
#[cfg(all(feature = "grpc", target_os = "linux"))]
mod exhausted_budget;
#[cfg(all(feature = "grpc", target_os = "linux"))]
pub(crate) mod exhaustion;
#[cfg(feature = "server")]
pub(crate) mod exposure;
#[cfg(feature = "server")]
pub(crate) mod hostile_clients;
#[cfg(all(feature = "jwt", feature = "tls"))]
pub(crate) mod jwt;
#[cfg(feature = "server")]
pub(crate) mod large_bodies;
#[cfg(all(feature = "grpc", target_os = "linux"))]
pub(crate) mod memory_limits;
pub(crate) mod robustness;
#[cfg(all(feature = "grpc", target_os = "linux"))]
pub(crate) mod unread_responses;
