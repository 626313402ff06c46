//! What goes wrong on the way to a mock and back.

use std::time::Duration;

use attache::model::units::{ByteSize, OptionalHumanDuration};
use serde::Deserialize;

/// What goes wrong with the answer to a request. An agent cannot do this to its callers: `attache mock` does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// What the body of the request has in it, anywhere; any body if left out.
    pub contains: String,
    /// How often it happens, from the first such request on; always if left out.
    pub times: Option<usize>,
    /// How long the answer is held back.
    #[serde(with = "OptionalHumanDuration")]
    pub delay: Option<Duration>,
    /// Answers with this status and nothing else; the agent never hears of it.
    pub status: Option<u16>,
    /// Closes the connection after so many bytes of the body.
    #[serde(deserialize_with = "some_size")]
    pub cut_after: Option<usize>,
    /// Sends every event of a stream twice.
    pub duplicate: bool,
    /// Sends every two events of a stream in the wrong order.
    pub swap: bool,
    /// Puts a brace too many before every event, and before any other body.
    pub garble: bool,
}

fn some_size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    ByteSize::deserialize(deserializer).map(Some)
}
