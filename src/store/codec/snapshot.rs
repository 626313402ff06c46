//! Snapshots of folded logs.

use std::sync::Arc;

use super::decoder::LogDecoder;
use super::encoder::LogEncoder;
use super::event::{
    decode_call_metadata, decode_status, decode_trace, encode_call_metadata, encode_status,
    encode_trace,
};
use super::message::{
    decode_artifact, decode_message, decode_optional_object, encode_artifact, encode_message,
    encode_optional_object,
};
use super::{CodecError, DecodeResult};
use crate::model::{Message, Task};
use crate::store::Snapshot;

/// Format of snapshots. Earlier formats are not decoded: a snapshot is a cache, and the engine folds the log instead.
pub(super) const SNAPSHOT_FORMAT: u8 = 4;

/// Encodes a snapshot.
pub(in crate::store) fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = LogEncoder::new(SNAPSHOT_FORMAT, 0);
    encode_task(&mut out, &snapshot.task);
    out.list(&snapshot.unanswered, |out, message| {
        encode_message(out, message)
    });
    out.list(&snapshot.traces, |out, (turn, trace)| {
        out.number(*turn);
        encode_trace(out, trace);
    });
    out.number(snapshot.turns_ended);
    out.number(snapshot.attempts.into());
    out.byte(snapshot.cancel_requested.into());
    out.list(&snapshot.calls, |out, (turn, call)| {
        out.number(*turn);
        encode_call_metadata(out, call);
    });
    out.into_bytes()
}

/// Decodes a snapshot of the current format.
pub(in crate::store) fn decode_snapshot(bytes: &[u8]) -> DecodeResult<Snapshot> {
    let mut from = LogDecoder::new(bytes, SNAPSHOT_FORMAT)?;
    let snapshot = Snapshot {
        task: Arc::new(decode_task(&mut from)?),
        unanswered: decode_messages(&mut from)?,
        traces: from.list(|from| Ok((from.number()?, decode_trace(from)?)))?,
        turns_ended: from.number()?,
        attempts: u32::try_from(from.number()?).map_err(|_| CodecError("integer over 32 bits"))?,
        cancel_requested: match from.byte()? {
            0 => false,
            1 => true,
            _ => return Err(CodecError("flag other than 0 and 1")),
        },
        calls: from.list(|from| Ok((from.number()?, decode_call_metadata(from)?)))?,
    };
    from.finish(snapshot)
}

fn encode_task(out: &mut LogEncoder, task: &Task) {
    out.text(task.id.as_str());
    out.text(task.context_id.as_str());
    encode_status(out, &task.status);
    out.list(&task.artifacts, encode_artifact);
    out.list(&task.history, |out, message| encode_message(out, message));
    encode_optional_object(out, task.metadata.as_ref());
}

pub(super) fn decode_task(from: &mut LogDecoder<'_>) -> DecodeResult<Task> {
    Ok(Task {
        id: from.text()?.into(),
        context_id: from.text()?.into(),
        status: decode_status(from)?,
        artifacts: from.list(decode_artifact)?,
        history: decode_messages(from)?,
        metadata: decode_optional_object(from)?,
    })
}

fn decode_messages(from: &mut LogDecoder<'_>) -> DecodeResult<Vec<Arc<Message>>> {
    from.list(|from| decode_message(from).map(Arc::new))
}
