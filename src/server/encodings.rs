//! Keys of the encoding cache: entries and tasks are encoded once per output format and shared by
//! all readers of it.

use std::sync::Arc;

use bytes::Bytes;

use super::admitted_call::AdmittedCall;
use crate::model::{CallerKey, Error, Result, StreamResponse, Task, TaskId};
use crate::rt::ByteBudget;
use crate::service::{TaskEventStream, TaskView};
use crate::wire::{Dialect, write_task};

/// First cache key that the gRPC formats use. Keys below it belong to JSON.
#[cfg(feature = "grpc")]
pub(super) const FIRST_GRPC_ENCODING: u8 = 16;

/// Returns the cache key of a JSON format, below 16. Returns `None` for dialects that depend on one
/// client.
pub(super) fn json_encoding(dialect: &Dialect, closes: bool) -> Option<u8> {
    match (dialect, closes) {
        (Dialect::V1, _) => Some(0),
        (Dialect::V03, false) => Some(1),
        (Dialect::V03, true) => Some(2),
        (Dialect::V03Rest, false) => Some(3),
        (Dialect::V03Rest, true) => Some(4),
        (Dialect::V03Tools, false) => Some(5),
        (Dialect::V03Tools, true) => Some(6),
        (Dialect::Fasta2a, _) => Some(7),
        (Dialect::Kaos, _) => Some(8),
        (Dialect::V03PushSuccess | Dialect::V01 { .. }, _) => None,
    }
}

/// Returns the cache key of a task in a reply to a request with this alias.
pub(super) fn task_format(dialect: &Dialect, alias: Option<&TaskId>, task: &Task) -> Option<u8> {
    let dialect = dialect.clone().with_alias(alias.cloned(), &task.id);
    json_encoding(&dialect.for_task(task), false)
}

/// Returns the JSON of a task, from the cache if the dialect is cacheable.
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

/// Returns the JSON of a large task, shared by all readers of the dialect if it is cacheable. It counts against the
/// byte budget until they have dropped it.
///
/// # Errors
/// Unavailable: the budget is exhausted.
pub(super) fn encode_large_task(
    call: &AdmittedCall<'_>,
    task: &mut TaskView,
    dialect: &Dialect,
) -> Result<Bytes> {
    encode_counted(task, dialect, call.outgoing(), &call.caller_key())
}

/// Returns the JSON of a large task in a stream, like [`encode_large_task`].
///
/// # Errors
/// Unavailable: the budget is exhausted.
pub(super) fn encode_streamed_task(
    stream: &TaskEventStream,
    task: &mut TaskView,
    dialect: &Dialect,
) -> Result<Bytes> {
    match stream.outgoing() {
        Some((outgoing, caller)) => encode_counted(task, dialect, outgoing, caller),
        None => Err(Error::internal("a stream of a task has a budget")),
    }
}

fn encode_counted(
    task: &mut TaskView,
    dialect: &Dialect,
    outgoing: &Arc<ByteBudget>,
    caller: &CallerKey,
) -> Result<Bytes> {
    let write = |task: &Task, out: &mut Vec<u8>| write_task(out, task, dialect);
    if let Some(encoding) = json_encoding(dialect, false) {
        return task.encoded_large(encoding, outgoing, caller, write);
    }
    let reservation = match task.take_reservation() {
        Some(reservation) => *reservation,
        None => outgoing.reserve_or_refuse(caller, task.large_size().unwrap_or_default())?,
    };
    let mut out = Vec::new();
    write(task, &mut out);
    Ok(reservation.attach(out.into()))
}

/// Returns an event with a large task in a form that only this stream sends. It counts against the byte budget until it is
/// dropped.
///
/// # Errors
/// Unavailable: the budget is exhausted.
pub(super) fn encode_unshared_event(
    stream: &TaskEventStream,
    mut task: Box<TaskView>,
    write: impl FnOnce(&mut Vec<u8>, StreamResponse),
) -> Result<Bytes> {
    let Some((outgoing, caller)) = stream.outgoing() else {
        return Err(Error::internal("a stream of a task has a budget"));
    };
    let bytes = task.large_size().unwrap_or_default();
    let reservation = match task.take_reservation() {
        Some(reservation) => *reservation,
        // The copy and its encoding.
        None => outgoing.reserve_or_refuse(caller, 2 * bytes)?,
    };
    let event = StreamResponse::Task(Task::clone(&task));
    drop(task);
    let mut out = Vec::with_capacity(bytes);
    write(&mut out, event);
    Ok(reservation.attach(out.into()))
}
