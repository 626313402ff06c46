//! Protobuf of A2A 1.0 (`lf.a2a.v1`), to and from the model.
//!
//! `v1::Task::from(&task)` writes, `Task::try_from(message)` reads; the same for every request, response and event.
//! What has no presence there has its default here, empty strings included; what has presence keeps it.

mod card;
mod message;
mod push;
mod request;
