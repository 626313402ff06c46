//! Binary codec of task logs, shared by the stores.
//!
//! The first byte of every encoded value is its format, so that formats can coexist. A format that was ever written to
//! disk stays readable (`tests/golden/log`). Numbers of event kinds, states and roles are never reused.
//!
//! Decoding accepts arbitrary bytes without panicking, takes linear time, and allocates no more than the input justifies.

mod decoder;
mod encoder;
mod event;
mod message;
#[cfg(feature = "sqlite")]
mod registration;
#[cfg(feature = "sqlite")]
mod snapshot;

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;

use std::fmt;

use crate::model::{ContextId, Event, TaskId, Timestamp};

use decoder::LogDecoder;
use encoder::LogEncoder;

#[cfg(feature = "sqlite")]
pub(in crate::store) use event::{state_from_number, state_number};
#[cfg(feature = "sqlite")]
pub(in crate::store) use registration::{decode_registration, encode_registration};
#[cfg(feature = "sqlite")]
pub(in crate::store) use snapshot::{decode_snapshot, encode_snapshot};

/// Format on disk: every id is written in full.
const PLAIN_FORMAT: u8 = 1;

/// Format in memory: an id that was written before is one byte.
const COMPACT_FORMAT: u8 = 2;

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

/// Ids of a task and of its context. The compact format abbreviates them in messages.
#[derive(Debug, Clone)]
struct OwnIds {
    task: TaskId,
    context: ContextId,
}

/// Encodes the events of one batch in the format on disk.
#[cfg(feature = "sqlite")]
pub(in crate::store) fn encode_events(time: Timestamp, events: &[Event]) -> Vec<u8> {
    let capacity = events.len() * TYPICAL_EVENT_BYTES;
    encode_batch(
        LogEncoder::with_prefix(&[], PLAIN_FORMAT, capacity),
        time,
        events,
    )
}

/// Encodes the events of one batch in the compact format, after the bytes of `prefix`.
pub(in crate::store) fn encode_compact_events(
    prefix: &[u8],
    time: Timestamp,
    events: &[Event],
) -> Vec<u8> {
    let capacity = events.len() * TYPICAL_EVENT_BYTES;
    encode_batch(
        LogEncoder::with_prefix(prefix, COMPACT_FORMAT, capacity),
        time,
        events,
    )
}

fn encode_batch(mut out: LogEncoder, time: Timestamp, events: &[Event]) -> Vec<u8> {
    out.time(time);
    out.list(events, event::encode_event);
    out.into_bytes()
}

/// Decodes the events of one batch, in either format.
pub(in crate::store) fn decode_events(bytes: &[u8]) -> DecodeResult<(Timestamp, Vec<Event>)> {
    let mut from = events_decoder(bytes)?;
    let time = from.time()?;
    let events = from.list(event::decode_event)?;
    from.finish((time, events))
}

/// Decodes the number of events in a batch without decoding the events.
pub(in crate::store) fn count_events(bytes: &[u8]) -> DecodeResult<u64> {
    let mut from = events_decoder(bytes)?;
    from.time()?;
    from.number()
}

/// Decodes the task id and the context id if the first event of the batch is [`Event::Created`].
pub(in crate::store) fn decode_created_ids(bytes: &[u8]) -> Option<(&str, &str)> {
    let mut from = created_decoder(bytes)?;
    from.text().ok().zip(from.text().ok())
}

/// Decodes the task id if the first event of the batch is [`Event::Created`].
pub(in crate::store) fn decode_created_id(bytes: &[u8]) -> Option<&str> {
    created_decoder(bytes)?.text().ok()
}

/// Returns a decoder at the fields of the first event, if that is [`Event::Created`].
fn created_decoder(bytes: &[u8]) -> Option<LogDecoder<'_>> {
    let mut from = events_decoder(bytes).ok()?;
    from.time().ok()?;
    from.number().ok().filter(|count| *count > 0)?;
    from.byte().ok().filter(|kind| *kind == event::CREATED)?;
    Some(from)
}

fn events_decoder(bytes: &[u8]) -> DecodeResult<LogDecoder<'_>> {
    let format = if bytes.first() == Some(&COMPACT_FORMAT) {
        COMPACT_FORMAT
    } else {
        PLAIN_FORMAT
    };
    LogDecoder::new(bytes, format)
}
