//! Limits of requests and responses.

use serde::{Deserialize, Serialize};

use super::units::ByteSize;

/// Limits of requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Maximum number of parts in a message.
    pub max_parts: usize,
    /// Maximum number of members of a JSON object in the metadata or a data part of a message, at any depth.
    pub max_object_members: usize,
    /// Maximum size of a metadata object of a request, in bytes.
    #[serde(with = "ByteSize")]
    pub max_metadata_bytes: usize,
    /// Maximum number of push configurations of a task.
    pub max_push_configs: usize,
    /// Maximum size of the tasks on one page of a list, in bytes. A page that reaches it ends
    /// early.
    #[serde(with = "ByteSize")]
    pub max_page_bytes: usize,
    /// Maximum number of history messages in a response; the newest are returned. A caller may
    /// request fewer.
    pub max_history_length: usize,
    /// Maximum number of log entries replayed when a stream resumes. Beyond it, the stream starts
    /// with the current task.
    pub max_replayed_entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_parts: 1000,
            max_object_members: 10_000,
            max_metadata_bytes: 1 << 20,
            max_push_configs: 32,
            max_page_bytes: 16 << 20,
            max_history_length: 10_000,
            max_replayed_entries: 10_000,
        }
    }
}

impl Limits {
    /// Limits a requested history length to `max_history_length`.
    #[must_use]
    pub fn clamp_history_length(&self, requested: Option<i32>) -> Option<i32> {
        let limit = i32::try_from(self.max_history_length).unwrap_or(i32::MAX);
        Some(requested.map_or(limit, |requested| requested.min(limit)))
    }
}
