//! Events, statuses and trace contexts.

use std::sync::Arc;

use super::decoder::LogDecoder;
use super::encoder::LogEncoder;
use super::message::{
    decode_artifact, decode_message, decode_optional_object, encode_artifact, encode_message,
    encode_optional_object,
};
use super::{CodecError, DecodeResult};
use crate::model::{CallMetadata, Event, TaskState, TaskStatus, TraceContext, Version};

// Numbers of the event kinds. They are on disk: never change or reuse one.
const CREATED: u8 = 1;
pub(super) const MESSAGE: u8 = 2;
const TURN_STARTED: u8 = 3;
const STATUS: u8 = 4;
const ARTIFACT: u8 = 5;
const CANCEL_REQUESTED: u8 = 6;
const IGNORED: u8 = 7;
const TURN_ENDED: u8 = 8;
const TRACED: u8 = 9;
const CALL_METADATA: u8 = 10;

/// Flag bits of an artifact event.
const APPEND: u8 = 1;
const LAST_CHUNK: u8 = 2;

/// Returns the number that encodes a state.
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

/// Returns the state that a number encodes.
pub(in crate::store) fn state_from_number(number: u8) -> DecodeResult<TaskState> {
    let mut all = TaskState::ALL.into_iter().chain([TaskState::Unspecified]);
    all.find(|state| state_number(*state) == number)
        .ok_or(CodecError("unknown task state"))
}

/// Encodes an event: its kind, then its fields.
pub(super) fn encode_event(out: &mut LogEncoder, event: &Event) {
    match event {
        Event::Created {
            id,
            context_id,
            metadata,
        } => {
            out.byte(CREATED);
            out.text(id.as_str());
            out.text(context_id.as_str());
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
        Event::CallMetadata(call) => {
            out.byte(CALL_METADATA);
            encode_call_metadata(out, call);
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

/// Decodes an event.
pub(super) fn decode_event(from: &mut LogDecoder<'_>) -> DecodeResult<Event> {
    Ok(match from.byte()? {
        CREATED => Event::Created {
            id: from.text()?.into(),
            context_id: from.text()?.into(),
            metadata: decode_optional_object(from)?,
        },
        MESSAGE => Event::Message(Arc::new(decode_message(from)?)),
        TRACED => Event::TraceContext(decode_trace(from)?),
        CALL_METADATA => Event::CallMetadata(decode_call_metadata(from)?),
        TURN_STARTED => Event::TurnStarted,
        STATUS => Event::Status {
            status: decode_status(from)?,
            metadata: decode_optional_object(from)?,
        },
        ARTIFACT => {
            let flags = from.byte()?;
            if flags & !(APPEND | LAST_CHUNK) != 0 {
                return Err(CodecError("unknown flag of an artifact event"));
            }
            Event::Artifact {
                artifact: decode_artifact(from)?,
                append: flags & APPEND != 0,
                last_chunk: flags & LAST_CHUNK != 0,
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
        _ => return Err(CodecError("unknown event kind")),
    })
}

pub(super) fn encode_trace(out: &mut LogEncoder, trace: &TraceContext) {
    out.text(trace.parent());
    out.optional_text(trace.state());
}

pub(super) fn decode_trace(from: &mut LogDecoder<'_>) -> DecodeResult<TraceContext> {
    let parent = from.text()?;
    let state = from.optional_text()?;
    TraceContext::parse(parent, state).ok_or(CodecError("malformed trace context"))
}

pub(super) fn encode_call_metadata(out: &mut LogEncoder, call: &CallMetadata) {
    encode_version(out, call.version);
    out.list(&call.extensions, |out, uri| out.text(uri));
}

pub(super) fn decode_call_metadata(from: &mut LogDecoder<'_>) -> DecodeResult<CallMetadata> {
    Ok(CallMetadata {
        version: decode_version(from)?,
        extensions: from.list(|from| from.text().map(str::to_owned))?,
    })
}

pub(super) fn encode_version(out: &mut LogEncoder, version: Version) {
    out.text(version.as_str());
}

pub(super) fn decode_version(from: &mut LogDecoder<'_>) -> DecodeResult<Version> {
    let name = from.text()?;
    let mut versions = Version::ALL.into_iter();
    versions
        .find(|version| version.as_str() == name)
        .ok_or(CodecError("unknown protocol version"))
}

pub(super) fn encode_status(out: &mut LogEncoder, status: &TaskStatus) {
    out.byte(state_number(status.state));
    out.optional(status.message.as_deref(), encode_message);
    out.optional(status.timestamp, LogEncoder::time);
}

pub(super) fn decode_status(from: &mut LogDecoder<'_>) -> DecodeResult<TaskStatus> {
    Ok(TaskStatus {
        state: state_from_number(from.byte()?)?,
        message: from.optional(decode_message)?.map(Arc::new),
        timestamp: from.optional(LogDecoder::time)?,
    })
}
