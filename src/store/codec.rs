//! How a log is written down: the binary form that stores on disk share.
//!
//! The first byte names the format, so that a later one can stand beside it; what was written once stays readable
//! for ever (`tests/golden/log`). Numbers given to kinds, states and roles are never used again for another.
//! Reading takes any bytes, never panics, and is linear in their number.

mod bytes;
mod message;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::{Read, Reader, Writer};
use message::{maybe_object, read_artifact, read_maybe_object, read_message, write_artifact, write_message};

use super::{Folded, Registered};
use crate::model::{
    AuthenticationInfo, Event, Message, PushConfig, Secret, Task, TaskState, TaskStatus, Timestamp, Trace,
    Version,
};

pub(in crate::store) use bytes::Corrupt;

const FORMAT: u8 = 1;

/// Folds have a format of their own; of those before, which had less, nothing is read any more.
const FOLDED_FORMAT: u8 = 3;

/// Events that were recorded at one time.
pub(in crate::store) fn write_events(time: Timestamp, events: &[Event]) -> Vec<u8> {
    let mut out = Writer::new(FORMAT);
    out.time(time);
    out.list(events, write_event);
    out.into_bytes()
}

/// The reverse of [`write_events`].
pub(in crate::store) fn read_events(bytes: &[u8]) -> Read<(Timestamp, Vec<Event>)> {
    let mut from = Reader::new(bytes, FORMAT)?;
    let events = (from.time()?, from.list(read_event)?);
    from.end(events)
}

/// A log, folded. A cache: what is of another format is folded anew, so there is no need to read it.
pub(in crate::store) fn write_folded(folded: &Folded) -> Vec<u8> {
    let mut out = Writer::new(FOLDED_FORMAT);
    write_task(&mut out, &folded.task);
    out.list(&folded.waiting, |out, message| write_message(out, message));
    out.list(&folded.traces, |out, (turn, trace)| {
        out.number(*turn);
        write_trace(out, trace);
    });
    out.number(folded.turns_ended);
    out.number(folded.attempts.into());
    out.into_bytes()
}

/// The reverse of [`write_folded`].
pub(in crate::store) fn read_folded(bytes: &[u8]) -> Read<Folded> {
    let mut from = Reader::new(bytes, FOLDED_FORMAT)?;
    let folded = Folded {
        task: Arc::new(read_task(&mut from)?),
        waiting: read_messages(&mut from)?,
        traces: from.list(|from| Ok((from.number()?, read_trace(from)?)))?,
        turns_ended: from.number()?,
        attempts: u32::try_from(from.number()?).map_err(|_| Corrupt("a number beyond 32 bits"))?,
    };
    from.end(folded)
}

/// A webhook.
pub(in crate::store) fn write_config(registered: &Registered) -> Vec<u8> {
    let Registered { config, version } = registered;
    let mut out = Writer::new(FORMAT);
    out.text(version.as_str());
    out.maybe_text(config.tenant.as_deref());
    out.maybe_text(config.id.as_ref().map(AsRef::as_ref));
    out.maybe_text(config.task_id.as_ref().map(AsRef::as_ref));
    out.text(&config.url);
    out.maybe_text(config.token.as_ref().map(Secret::expose));
    out.maybe(config.authentication.as_ref(), |out, info| {
        out.text(&info.scheme);
        out.maybe_text(info.credentials.as_ref().map(Secret::expose));
    });
    out.list(&config.other_schemes, |out, scheme| out.text(scheme));
    out.list(&config.headers, |out, (name, value)| {
        out.text(name);
        out.text(value.expose());
    });
    out.into_bytes()
}

/// The reverse of [`write_config`].
pub(in crate::store) fn read_config(bytes: &[u8]) -> Read<Registered> {
    let mut from = Reader::new(bytes, FORMAT)?;
    let name = from.text()?;
    let version = Version::ALL.into_iter().find(|version| version.as_str() == name);
    let version = version.ok_or(Corrupt("an unknown version of the protocol"))?;
    let config = PushConfig {
        tenant: from.maybe_text()?.map(str::to_owned),
        id: from.maybe_text()?.map(Into::into),
        task_id: from.maybe_text()?.map(Into::into),
        url: from.text()?.to_owned(),
        token: from.maybe_text()?.map(Secret::from),
        authentication: from.maybe(|from| {
            let scheme = from.text()?.to_owned();
            Ok(AuthenticationInfo { scheme, credentials: from.maybe_text()?.map(Secret::from) })
        })?,
        other_schemes: from.list(|from| from.text().map(str::to_owned))?,
        headers: from.list(|from| Ok((from.text()?.to_owned(), from.text()?.into())))?,
    };
    from.end(Registered { config, version })
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
    all.find(|state| state_number(*state) == number).ok_or(Corrupt("an unknown state"))
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
        Event::Created { id, context_id, metadata } => {
            out.byte(CREATED);
            out.text(id.as_str());
            out.text(context_id.as_str());
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
        Event::Artifact { artifact, append, last_chunk, metadata } => {
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
        CREATED => Event::Created {
            id: from.text()?.into(),
            context_id: from.text()?.into(),
            metadata: read_maybe_object(from)?,
        },
        MESSAGE => Event::Message(Arc::new(read_message(from)?)),
        TRACED => Event::Traced(read_trace(from)?),
        TURN_STARTED => Event::TurnStarted,
        STATUS => Event::Status { status: read_status(from)?, metadata: read_maybe_object(from)? },
        ARTIFACT => {
            let flags = from.byte()?;
            if flags & !(APPEND | LAST_CHUNK) != 0 {
                return Err(Corrupt("an unknown mark on an artifact"));
            }
            let (append, last_chunk) = (flags & APPEND != 0, flags & LAST_CHUNK != 0);
            let artifact = read_artifact(from)?;
            Event::Artifact { artifact, append, last_chunk, metadata: read_maybe_object(from)? }
        }
        CANCEL_REQUESTED => Event::CancelRequested { metadata: read_maybe_object(from)? },
        IGNORED => Event::Ignored { reason: from.text()?.to_owned() },
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

fn write_task(out: &mut Writer, task: &Task) {
    out.text(task.id.as_str());
    out.text(task.context_id.as_str());
    write_status(out, &task.status);
    out.list(&task.artifacts, write_artifact);
    out.list(&task.history, |out, message| write_message(out, message));
    maybe_object(out, task.metadata.as_ref());
}

fn read_task(from: &mut Reader<'_>) -> Read<Task> {
    Ok(Task {
        id: from.text()?.into(),
        context_id: from.text()?.into(),
        status: read_status(from)?,
        artifacts: from.list(read_artifact)?,
        history: read_messages(from)?,
        metadata: read_maybe_object(from)?,
    })
}

fn read_messages(from: &mut Reader<'_>) -> Read<Vec<Arc<Message>>> {
    from.list(|from| read_message(from).map(Arc::new))
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
