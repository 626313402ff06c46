//! The forms in which an entry goes out: one per way of writing it, shared by all who read it so.

use crate::model::{ContextId, Entry, StreamResponse, TaskId};
use crate::wire::Dialect;

/// The form of an entry in JSON, each below 16: the rest are gRPC's. What is written for one client alone is nobody else's.
pub(super) fn form(dialect: &Dialect, closes: bool) -> Option<u8> {
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

/// Hands over what callers are told of an entry, if they are told of it.
pub(super) fn event(
    entry: &Entry,
    (task, context): (&TaskId, &ContextId),
    tell: impl FnOnce(&StreamResponse),
) {
    if let Some(event) = entry.update(task, context) {
        tell(&event);
    }
}
