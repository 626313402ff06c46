//! Fast paths of the JSON codecs for the most frequent requests, responses and events of 1.0.
//!
//! Each one produces exactly the result of the general path, and returns to it for anything unusual
//! or invalid. Each names the gain and the test that compares the two.

mod decode;
pub(super) mod encode;
mod stream_event;

pub use decode::{FastCall, fast_decode};
pub use stream_event::StreamEventWriter;
