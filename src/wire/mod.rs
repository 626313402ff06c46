//! How it is written: bytes to model and back, the only room that behaves by version.

pub mod sse;
