//! Faults that `attache mock` injects into responses.

use std::time::Duration;

use attache::model::units::{ByteSize, OptionalHumanDuration};
use serde::Deserialize;

/// Fault injected into the response to a request. A proxy in front of the agent applies it (`attache mock`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Text that the request body must contain. Default: any body.
    pub contains: String,
    /// Number of matching requests that the fault applies to. Default: all.
    pub times: Option<usize>,
    /// Delay of the response.
    #[serde(with = "OptionalHumanDuration")]
    pub delay: Option<Duration>,
    /// Status to respond with, without a body. The request does not reach the agent.
    pub status: Option<u16>,
    /// Number of body bytes after which the connection is closed.
    #[serde(deserialize_with = "some_size")]
    pub cut_after: Option<usize>,
    /// Whether every event of a stream is sent twice.
    pub duplicate: bool,
    /// Whether every two events of a stream are swapped.
    pub swap: bool,
    /// Whether every event and every other body gets an extra brace in front, which makes it invalid JSON.
    pub garble: bool,
}

fn some_size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    ByteSize::deserialize(deserializer).map(Some)
}
