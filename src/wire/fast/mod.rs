//! Fast paths of the JSON codecs: the most frequent A2A 1.0 calls and answers, read and written without the generic path.

mod decode;
pub(super) mod encode;
mod payload_slice;
mod stream_event;

pub use decode::{FastCall, LARGE_BODY_BYTES, fast_decode, fast_decode_large};
pub use stream_event::StreamEventWriter;
