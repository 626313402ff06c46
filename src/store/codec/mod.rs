//! Binary codec of task logs, shared by the stores.
//!
//! The first byte of every encoded value is its format, so that formats can coexist. A format that was ever written to
//! disk stays readable (`tests/golden/log`). Numbers of event kinds, states and roles are never reused.
//!
//! Decoding accepts arbitrary bytes without panicking, takes linear time, and allocates no more than the input justifies.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod checksum;
mod decoder;
mod encoder;
mod event;
mod message;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod registration;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod snapshot;

#[cfg(test)]
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tests;

use std::fmt;

use crate::model::{Event, Timestamp};

use decoder::LogDecoder;
use encoder::LogEncoder;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) use checksum::{verify_checksum, with_checksum};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) use event::{state_from_number, state_number};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) use registration::{decode_registration, encode_registration};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(in crate::store) use snapshot::{decode_snapshot, encode_snapshot};

/// Format of events and webhook registrations.
const PLAIN_FORMAT: u8 = 1;

/// Estimated size of an encoded event: a chunk with a few words of text.
const TYPICAL_EVENT_BYTES: usize = 112;

/// Error of decoding stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct CodecError(pub(in crate::store) &'static str);

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stored bytes are damaged, or from a newer program: {}",
            self.0
        )
    }
}

impl std::error::Error for CodecError {}

type DecodeResult<T> = Result<T, CodecError>;

/// Encodes the events of one batch.
pub(in crate::store) fn encode_events(time: Timestamp, events: &[Event]) -> Vec<u8> {
    let mut out = LogEncoder::new(PLAIN_FORMAT, events.len() * TYPICAL_EVENT_BYTES);
    out.time(time);
    out.list(events, event::encode_event);
    out.into_bytes()
}

/// Decodes the events of one batch.
pub(in crate::store) fn decode_events(bytes: &[u8]) -> DecodeResult<(Timestamp, Vec<Event>)> {
    let mut from = LogDecoder::new(bytes, PLAIN_FORMAT)?;
    let time = from.time()?;
    let events = from.list(event::decode_event)?;
    from.finish((time, events))
}
