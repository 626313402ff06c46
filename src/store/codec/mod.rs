//! How a log is written down: the binary form that our stores share.
//!
//! The first byte names the format, so that a later one can stand beside it; what was written once stays readable
//! for ever (`tests/golden/log`). Numbers given to kinds, states and roles are never used again for another.
//! Reading takes any bytes, never panics, and is linear in their number.

mod bytes;
mod message;
#[cfg(feature = "sqlite")]
mod plain;
#[cfg(feature = "sqlite")]
mod registration;
#[cfg(feature = "sqlite")]
mod snapshot;

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;

use std::sync::Arc;

use bytes::{COMPACT_FORMAT, DecodeResult, LogDecoder, LogEncoder};
use message::{
    decode_artifact, decode_message, decode_optional_object, encode_artifact, encode_message,
    encode_optional_object,
};

use crate::model::{Event, TaskState, TaskStatus, Timestamp, TraceContext};

pub(in crate::store) use bytes::CodecError;
#[cfg(feature = "sqlite")]
pub(in crate::store) use plain::encode_events;
#[cfg(feature = "sqlite")]
pub(in crate::store) use registration::{decode_registration, encode_registration};
#[cfg(feature = "sqlite")]
pub(in crate::store) use snapshot::{decode_snapshot, encode_snapshot};

const PLAIN_FORMAT: u8 = 1;

/// What an event takes, mostly: a chunk of a few words.
const TYPICAL_EVENT_BYTES: usize = 112;

/// Events that were recorded at one time, in few bytes: ids of the task itself that its messages repeat are one each. On disk
/// they are written out, as they always were. This much goes before them.
pub(in crate::store) fn encode_compact_events(
    before: &[u8],
    time: Timestamp,
    events: &[Event],
) -> Vec<u8> {
    encode_batch(
        LogEncoder::with_prefix(before, COMPACT_FORMAT, events.len() * TYPICAL_EVENT_BYTES),
        time,
        events,
    )
}

fn encode_batch(mut out: LogEncoder, time: Timestamp, events: &[Event]) -> Vec<u8> {
    out.time(time);
    out.list(events, encode_event);
    out.into_bytes()
}

/// Events, in whichever form they were written.
pub(in crate::store) fn decode_events(bytes: &[u8]) -> DecodeResult<(Timestamp, Vec<Event>)> {
    let mut from = events_decoder(bytes)?;
    let events = (from.time()?, from.list(decode_event)?);
    from.finish(events)
}

fn events_decoder(bytes: &[u8]) -> DecodeResult<LogDecoder<'_>> {
    LogDecoder::new(
        bytes,
        if bytes.first() == Some(&COMPACT_FORMAT) {
            COMPACT_FORMAT
        } else {
            PLAIN_FORMAT
        },
    )
}

/// How many events were written.
pub(in crate::store) fn count_events(bytes: &[u8]) -> DecodeResult<u64> {
    let mut from = events_decoder(bytes)?;
    from.time()?;
    from.number()
}

/// The ids of the task and of its conversation, where the first event says that the task exists.
pub(in crate::store) fn decode_created_ids(bytes: &[u8]) -> Option<(&str, &str)> {
    let mut from = created_decoder(bytes)?;
    from.text().ok().zip(from.text().ok())
}

/// The first of them alone.
pub(in crate::store) fn decode_created_id(bytes: &[u8]) -> Option<&str> {
    created_decoder(bytes)?.text().ok()
}

fn created_decoder(bytes: &[u8]) -> Option<LogDecoder<'_>> {
    let mut from = events_decoder(bytes).ok()?;
    from.time().ok()?;
    from.number().ok().filter(|count| *count > 0)?;
    from.byte().ok().filter(|kind| *kind == CREATED)?;
    Some(from)
}

/// The number a state is written as.
pub(in crate::store) fn state_number(state: TaskState) -> u8 {
    match state {
        TaskState::Unspecified => 0,
        TaskState::Submitted => 1,
        TaskState::Working => 2,
        TaskState::Completed => 3,
        TaskState::Failed => 4,
        TaskState::Canceled => 5,
        TaskState::InputRequired => 6,
        TaskState::Rejected => 7,
        TaskState::AuthRequired => 8,
    }
}

/// The reverse of [`state_number`].
pub(in crate::store) fn state_from_number(number: u8) -> DecodeResult<TaskState> {
    let mut all = TaskState::ALL.into_iter().chain([TaskState::Unspecified]);
    all.find(|state| state_number(*state) == number)
        .ok_or(CodecError("an unknown state"))
}

const CREATED: u8 = 1;
const MESSAGE: u8 = 2;
const TURN_STARTED: u8 = 3;
const STATUS: u8 = 4;
const ARTIFACT: u8 = 5;
const CANCEL_REQUESTED: u8 = 6;
const IGNORED: u8 = 7;
const TURN_ENDED: u8 = 8;
const TRACED: u8 = 9;

/// Bits of one byte of an artifact event.
const APPEND: u8 = 1;
const LAST_CHUNK: u8 = 2;

fn encode_event(out: &mut LogEncoder, event: &Event) {
    match event {
        Event::Created {
            id,
            context_id,
            metadata,
        } => {
            out.byte(CREATED);
            out.own_ids(id, context_id);
            encode_optional_object(out, metadata.as_ref());
        }
        Event::Message(message) => {
            out.byte(MESSAGE);
            encode_message(out, message);
        }
        Event::TraceContext(trace) => {
            out.byte(TRACED);
            encode_trace(out, trace);
        }
        Event::TurnStarted => out.byte(TURN_STARTED),
        Event::Status { status, metadata } => {
            out.byte(STATUS);
            encode_status(out, status);
            encode_optional_object(out, metadata.as_ref());
        }
        Event::Artifact {
            artifact,
            append,
            last_chunk,
            metadata,
        } => {
            out.byte(ARTIFACT);
            out.byte((u8::from(*append) * APPEND) | (u8::from(*last_chunk) * LAST_CHUNK));
            encode_artifact(out, artifact);
            encode_optional_object(out, metadata.as_ref());
        }
        Event::CancelRequested { metadata } => {
            out.byte(CANCEL_REQUESTED);
            encode_optional_object(out, metadata.as_ref());
        }
        Event::Ignored { reason } => {
            out.byte(IGNORED);
            out.text(reason);
        }
        Event::TurnEnded => out.byte(TURN_ENDED),
    }
}

fn decode_event(from: &mut LogDecoder<'_>) -> DecodeResult<Event> {
    Ok(match from.byte()? {
        CREATED => {
            let (id, context_id) = from.own_ids()?;
            Event::Created {
                id,
                context_id,
                metadata: decode_optional_object(from)?,
            }
        }
        MESSAGE => Event::Message(Arc::new(decode_message(from)?)),
        TRACED => Event::TraceContext(decode_trace(from)?),
        TURN_STARTED => Event::TurnStarted,
        STATUS => Event::Status {
            status: decode_status(from)?,
            metadata: decode_optional_object(from)?,
        },
        ARTIFACT => {
            let flags = from.byte()?;
            if flags & !(APPEND | LAST_CHUNK) != 0 {
                return Err(CodecError("an unknown mark on an artifact"));
            }
            let (append, last_chunk) = (flags & APPEND != 0, flags & LAST_CHUNK != 0);
            let artifact = decode_artifact(from)?;
            Event::Artifact {
                artifact,
                append,
                last_chunk,
                metadata: decode_optional_object(from)?,
            }
        }
        CANCEL_REQUESTED => Event::CancelRequested {
            metadata: decode_optional_object(from)?,
        },
        IGNORED => Event::Ignored {
            reason: from.text()?.to_owned(),
        },
        TURN_ENDED => Event::TurnEnded,
        _ => return Err(CodecError("an unknown kind of event")),
    })
}

fn encode_trace(out: &mut LogEncoder, trace: &TraceContext) {
    out.text(trace.parent());
    out.optional_text(trace.state());
}

fn decode_trace(from: &mut LogDecoder<'_>) -> DecodeResult<TraceContext> {
    let (parent, state) = (from.text()?, from.optional_text()?);
    TraceContext::parse(parent, state).ok_or(CodecError("a trace that is not well formed"))
}

fn encode_status(out: &mut LogEncoder, status: &TaskStatus) {
    out.byte(state_number(status.state));
    out.optional(status.message.as_deref(), encode_message);
    out.optional(status.timestamp, LogEncoder::time);
}

fn decode_status(from: &mut LogDecoder<'_>) -> DecodeResult<TaskStatus> {
    Ok(TaskStatus {
        state: state_from_number(from.byte()?)?,
        message: from.optional(decode_message)?.map(Arc::new),
        timestamp: from.optional(LogDecoder::time)?,
    })
}
