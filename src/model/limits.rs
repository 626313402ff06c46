//! What a request may not exceed.

use serde::{Deserialize, Serialize};

use super::units::ByteSize;

/// What a request may not exceed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Parts in one message.
    pub max_parts: usize,
    /// Webhooks of one task.
    pub max_push_configs: usize,
    /// What the tasks of one page may weigh, in bytes: a page ends early rather than grow beyond that.
    #[serde(with = "ByteSize")]
    pub max_page_bytes: usize,
    /// Messages of a task's history that go out with it, the newest ones; a caller may ask for fewer.
    pub max_history_length: usize,
    /// Entries that a stream is told again where it was cut; beyond that it begins with the task as it stands.
    pub max_replayed_entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_parts: 1000,
            max_push_configs: 32,
            max_page_bytes: 16 << 20,
            max_history_length: 10_000,
            max_replayed_entries: 10_000,
        }
    }
}

impl Limits {
    /// How many messages of a history go out where so many are asked for.
    #[must_use]
    pub fn clamp_history_length(&self, requested: Option<i32>) -> Option<i32> {
        let limit = i32::try_from(self.max_history_length).unwrap_or(i32::MAX);
        Some(requested.map_or(limit, |requested| requested.min(limit)))
    }
}
