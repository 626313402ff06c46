//! How a log is written down: the binary form that our stores share.
//!
//! The first byte names the format, so that a later one can stand beside it; what was written once stays readable
//! for ever (`tests/golden/log`). Numbers given to kinds, states and roles are never used again for another.
//! Reading takes any bytes, never panics, and is linear in their number.

mod bytes;
#[cfg(feature = "sqlite")]
mod config;
#[cfg(feature = "sqlite")]
mod folded;
mod message;
#[cfg(feature = "sqlite")]
mod plain;

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;

use std::sync::Arc;

use bytes::{Read, Reader, SHORT, Writer};
use message::{
    maybe_object, read_artifact, read_maybe_object, read_message, write_artifact, write_message,
};

use crate::model::{Event, TaskState, TaskStatus, Timestamp, Trace};

pub(in crate::store) use bytes::Corrupt;
#[cfg(feature = "sqlite")]
pub(in crate::store) use config::{read_config, write_config};
#[cfg(feature = "sqlite")]
pub(in crate::store) use folded::{read_folded, write_folded};
#[cfg(feature = "sqlite")]
pub(in crate::store) use plain::write_events;

const FORMAT: u8 = 1;

/// What an event takes, mostly: a chunk of a few words.
const USUAL_EVENT: usize = 112;

/// Events that were recorded at one time, in few bytes: ids of the task itself that its messages repeat are one each. On disk
/// they are written out, as they always were. This much goes before them.
pub(in crate::store) fn write_short(before: &[u8], time: Timestamp, events: &[Event]) -> Vec<u8> {
    write_behind(
        Writer::behind(before, SHORT, events.len() * USUAL_EVENT),
        time,
        events,
    )
}

fn write_behind(mut out: Writer, time: Timestamp, events: &[Event]) -> Vec<u8> {
    out.time(time);
    out.list(events, write_event);
    out.into_bytes()
}

/// Events, in whichever form they were written.
pub(in crate::store) fn read_events(bytes: &[u8]) -> Read<(Timestamp, Vec<Event>)> {
    let mut from = events(bytes)?;
    let events = (from.time()?, from.list(read_event)?);
    from.end(events)
}

fn events(bytes: &[u8]) -> Read<Reader<'_>> {
    Reader::new(
        bytes,
        if bytes.first() == Some(&SHORT) {
            SHORT
        } else {
            FORMAT
        },
    )
}

/// How many events were written.
pub(in crate::store) fn count_events(bytes: &[u8]) -> Read<u64> {
    let mut from = events(bytes)?;
    from.time()?;
    from.number()
}

/// The ids of the task and of its conversation, where the first event says that the task exists.
pub(in crate::store) fn read_created(bytes: &[u8]) -> Option<(&str, &str)> {
    let mut from = created(bytes)?;
    from.text().ok().zip(from.text().ok())
}

/// The first of them alone.
pub(in crate::store) fn read_created_id(bytes: &[u8]) -> Option<&str> {
    created(bytes)?.text().ok()
}

fn created(bytes: &[u8]) -> Option<Reader<'_>> {
    let mut from = events(bytes).ok()?;
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
pub(in crate::store) fn state_of(number: u8) -> Read<TaskState> {
    let mut all = TaskState::ALL.into_iter().chain([TaskState::Unspecified]);
    all.find(|state| state_number(*state) == number)
        .ok_or(Corrupt("an unknown state"))
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

fn write_event(out: &mut Writer, event: &Event) {
    match event {
        Event::Created {
            id,
            context_id,
            metadata,
        } => {
            out.byte(CREATED);
            out.own(id, context_id);
            maybe_object(out, metadata.as_ref());
        }
        Event::Message(message) => {
            out.byte(MESSAGE);
            write_message(out, message);
        }
        Event::Traced(trace) => {
            out.byte(TRACED);
            write_trace(out, trace);
        }
        Event::TurnStarted => out.byte(TURN_STARTED),
        Event::Status { status, metadata } => {
            out.byte(STATUS);
            write_status(out, status);
            maybe_object(out, metadata.as_ref());
        }
        Event::Artifact {
            artifact,
            append,
            last_chunk,
            metadata,
        } => {
            out.byte(ARTIFACT);
            out.byte((u8::from(*append) * APPEND) | (u8::from(*last_chunk) * LAST_CHUNK));
            write_artifact(out, artifact);
            maybe_object(out, metadata.as_ref());
        }
        Event::CancelRequested { metadata } => {
            out.byte(CANCEL_REQUESTED);
            maybe_object(out, metadata.as_ref());
        }
        Event::Ignored { reason } => {
            out.byte(IGNORED);
            out.text(reason);
        }
        Event::TurnEnded => out.byte(TURN_ENDED),
    }
}

fn read_event(from: &mut Reader<'_>) -> Read<Event> {
    Ok(match from.byte()? {
        CREATED => {
            let (id, context_id) = from.own()?;
            Event::Created {
                id,
                context_id,
                metadata: read_maybe_object(from)?,
            }
        }
        MESSAGE => Event::Message(Arc::new(read_message(from)?)),
        TRACED => Event::Traced(read_trace(from)?),
        TURN_STARTED => Event::TurnStarted,
        STATUS => Event::Status {
            status: read_status(from)?,
            metadata: read_maybe_object(from)?,
        },
        ARTIFACT => {
            let flags = from.byte()?;
            if flags & !(APPEND | LAST_CHUNK) != 0 {
                return Err(Corrupt("an unknown mark on an artifact"));
            }
            let (append, last_chunk) = (flags & APPEND != 0, flags & LAST_CHUNK != 0);
            let artifact = read_artifact(from)?;
            Event::Artifact {
                artifact,
                append,
                last_chunk,
                metadata: read_maybe_object(from)?,
            }
        }
        CANCEL_REQUESTED => Event::CancelRequested {
            metadata: read_maybe_object(from)?,
        },
        IGNORED => Event::Ignored {
            reason: from.text()?.to_owned(),
        },
        TURN_ENDED => Event::TurnEnded,
        _ => return Err(Corrupt("an unknown kind of event")),
    })
}

fn write_trace(out: &mut Writer, trace: &Trace) {
    out.text(trace.parent());
    out.maybe_text(trace.state());
}

fn read_trace(from: &mut Reader<'_>) -> Read<Trace> {
    let (parent, state) = (from.text()?, from.maybe_text()?);
    Trace::read(parent, state).ok_or(Corrupt("a trace that is not well formed"))
}

fn write_status(out: &mut Writer, status: &TaskStatus) {
    out.byte(state_number(status.state));
    out.maybe(status.message.as_deref(), write_message);
    out.maybe(status.timestamp, Writer::time);
}

fn read_status(from: &mut Reader<'_>) -> Read<TaskStatus> {
    Ok(TaskStatus {
        state: state_of(from.byte()?)?,
        message: from.maybe(read_message)?.map(Arc::new),
        timestamp: from.maybe(Reader::time)?,
    })
}
