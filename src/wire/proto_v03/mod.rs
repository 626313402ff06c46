//! Protobuf of A2A 0.3 (`a2a.v1`), to and from the model.
//!
//! Three revisions of it are in the field, with one set of numbers: what any of them has is read, what the 0.3 SDK
//! for Python knows is written. Written and read as in [`super::proto_v1`], with three exceptions: a status event
//! needs to be told whether it closes its stream ([`stream_response`]), a card may have no interface that 0.3 could
//! reach, and `ListTasks` does not exist.
//!
//! Lost on the way down: tenants, media types and names of text and data parts, references to other tasks, metadata
//! of a cancel, device-code flows and PKCE. A history length of 0 means all there, so it cannot be said.

mod card;
mod message;
mod push;
mod request;
mod resource_name;

pub use message::{status_event, stream_response};
