//! The forms in which an entry or a task goes out: one per way of writing it, shared by all who read it so.

use bytes::Bytes;

use crate::model::{ContextId, Entry, StreamResponse, Task, TaskId};
use crate::service::TaskView;
use crate::wire::{Dialect, write_task};

/// The form of an entry, or of a task, in JSON, each below 16: the rest are gRPC's. What is written for one client alone is
/// nobody else's.
pub(super) fn json_encoding(dialect: &Dialect, closes: bool) -> Option<u8> {
    match (dialect, closes) {
        (Dialect::V1, _) => Some(0),
        (Dialect::V03, false) => Some(1),
        (Dialect::V03, true) => Some(2),
        (Dialect::V03Rest, false) => Some(3),
        (Dialect::V03Rest, true) => Some(4),
        (Dialect::V03Tools, false) => Some(5),
        (Dialect::V03Tools, true) => Some(6),
        (Dialect::V01 { .. }, _) => None,
    }
}

/// A task that is the answer to a call, on any JSON binding.
pub(super) fn encode_task(task: &TaskView, dialect: &Dialect) -> Bytes {
    let write = |task: &Task, out: &mut Vec<u8>| write_task(out, task, dialect);
    match json_encoding(dialect, false) {
        Some(encoding) => task.encoded(encoding, write),
        None => {
            let mut out = Vec::new();
            write(task, &mut out);
            out.into()
        }
    }
}

/// Hands over what callers are told of an entry, if they are told of it.
pub(super) fn with_stream_response(
    entry: &Entry,
    (task, context): (&TaskId, &ContextId),
    write: impl FnOnce(&StreamResponse),
) {
    if let Some(event) = entry.update(task, context) {
        write(&event);
    }
}
