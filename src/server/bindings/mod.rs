//! The protocol bindings.

#[cfg(feature = "grpc")]
pub(in crate::server) mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "grpc_disabled.rs"]
pub(in crate::server) mod grpc;
pub(in crate::server) mod jsonrpc;
pub(in crate::server) mod openai;
pub(in crate::server) mod rest;
