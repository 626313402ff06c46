//! Conversions between the model and the protobuf messages of A2A 1.0 (`lf.a2a.v1`).
//!
//! `v1::Task::from(&task)` encodes, `Task::try_from(message)` decodes; likewise for every request,
//! response and event. A field without presence becomes the default, including empty strings. A
//! field with presence stays optional.

mod card;
mod message;
mod push;
mod request;
