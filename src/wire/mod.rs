//! How it is written: bytes to model and back, for every version and binding. The only room that behaves by version.

pub mod json;
mod part;
mod spelling;
pub mod sse;
mod strict;
