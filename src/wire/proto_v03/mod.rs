//! Conversions between the model and the protobuf messages of A2A 0.3 (`a2a.v1`).
//!
//! Three revisions of the package are in use, with the same field numbers. Fields of any revision
//! are decoded; only those of the 0.3 Python SDK are encoded. The conversions follow
//! [`super::proto_v1`], with three exceptions. A status event needs to know whether it is the last
//! one ([`stream_response`]). A card may have no interface for 0.3. `ListTasks` does not exist.
//!
//! Not representable in 0.3: tenants, media types and names of text and data parts, references to
//! other tasks, metadata of a cancel request, device code flows, PKCE, and a history length of 0,
//! which means all.

mod card;
mod message;
mod push;
mod request;
mod resource_name;

pub use message::{status_event, stream_response};
