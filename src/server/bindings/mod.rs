//! Protocol bindings: JSON-RPC, HTTP+JSON (REST), gRPC, and the OpenAI chat completions API.
//!
//! Each binding is a `handle` function with the same steps in the same order:
//!
//! ```text
//! authenticate → decode → resolve agent → authorize → rate-limit → call → encode
//! ```
//!
//! `handle` authenticates, opens the span of the call, and encodes errors. `execute` does the rest
//! inside the span. `decode` and `encode` belong to the binding; [`admission`](super::admission)
//! has the other steps. JSON-RPC decodes before it opens the span, since the body names the
//! operation.

#[cfg(feature = "grpc")]
pub(super) mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "grpc_disabled.rs"]
pub(super) mod grpc;
pub(super) mod jsonrpc;
pub(super) mod openai;
pub(super) mod rest;

use crate::model::{Error, ErrorKind};

/// Whether an operation failed because the task has ended.
fn is_task_ended(error: &Error) -> bool {
    error.kind() == ErrorKind::UnsupportedOperation
        && error.metadata().any(|(key, _)| key == "state")
}
