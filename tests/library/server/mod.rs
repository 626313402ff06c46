//! The server over HTTP, gRPC and TLS: operations, streams, bindings, bad input.

#[cfg(feature = "server")]
pub(crate) mod agents_and_tenants;
pub(crate) mod bad_input;
pub(crate) mod bindings;
#[cfg(feature = "server")]
pub(crate) mod card_settings;
#[cfg(all(feature = "grpc", feature = "server"))]
pub(crate) mod grpc;
#[cfg(feature = "server")]
pub(crate) mod operations;
#[cfg(feature = "server")]
pub(crate) mod published_metadata;
#[cfg(feature = "server")]
pub(crate) mod rate_limit_headers;
#[cfg(all(feature = "client", feature = "server"))]
pub(crate) mod reload;
#[cfg(feature = "server")]
pub(crate) mod resumption;
#[cfg(feature = "server")]
pub(crate) mod seeds;
#[cfg(feature = "server")]
pub(crate) mod streaming;
#[cfg(all(feature = "server", feature = "tls"))]
pub(crate) mod tls;
#[cfg(feature = "server")]
pub(crate) mod tool_results;
#[cfg(all(feature = "grpc", feature = "otel"))]
pub(crate) mod trace;
#[cfg(feature = "server")]
pub(crate) mod transport;
#[cfg(feature = "server")]
pub(crate) mod turns;
#[cfg(feature = "server")]
pub(crate) mod version_negotiation;
