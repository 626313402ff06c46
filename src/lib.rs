//! A durable runtime and toolkit for the Agent2Agent (A2A) protocol, every version of it.

pub mod model;
pub mod wire;

pub use model::{Error, ErrorKind, Result};
