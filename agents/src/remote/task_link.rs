//! What a task of ours knows of the one behind it: kept in its metadata, so that it survives a restart.

use attache::Turn;
use attache::model::{ContextId, Json, MessageId, Object, Task, TaskId};
use serde::{Deserialize, Serialize};

use crate::lineage::USAGE_KEY;

/// Its name in the metadata of a task. Nobody outside can write names that begin so.
const LINK_KEY: &str = "attache.remote";
/// What every server of our kind keeps for itself.
const RESERVED_PREFIX: &str = "attache.";

/// The task behind a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RemoteTaskLink {
    /// Whose it is: a digest of where that agent is, since a task may be passed from one to another.
    peer: String,
    /// Its id there; none if the answer was a plain message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<TaskId>,
    /// The conversation there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<ContextId>,
    /// The last message of ours that is known to have arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<MessageId>,
    /// Where that stands among the messages of the task: some callers use one id for every message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<usize>,
    /// For whom it was signed that it is; whoever stops it has to say so again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<String>,
}

impl RemoteTaskLink {
    /// What is known of a task, if the same agent is behind it.
    pub(super) fn from_task(task: &Task, peer: &str) -> Option<Self> {
        let kept = task.metadata.as_ref()?.get(LINK_KEY)?;
        kept.read::<Self>()
            .ok()
            .filter(|record| record.peer == peer)
    }

    pub(super) fn new(peer: &str) -> Self {
        Self {
            peer: peer.to_owned(),
            ..Self::default()
        }
    }

    /// The message of this turn has arrived.
    pub(super) fn record_delivery(&mut self, turn: &Turn) {
        (self.message_id, self.place) = (
            Some(turn.message().message_id.clone()),
            Some(message_index(turn)),
        );
    }

    /// Whether it is known to have.
    pub(super) fn is_delivered(&self, turn: &Turn) -> bool {
        self.message_id.as_ref() == Some(&turn.message().message_id)
            && self.place.is_none_or(|known| known == message_index(turn))
    }

    pub(super) fn to_metadata(&self) -> Object {
        let kept = Json::from_serialize(self).unwrap_or_default();
        [(LINK_KEY, kept)].into_iter().collect()
    }
}

/// Where the message of a turn stands among those of its task.
pub(super) fn message_index(turn: &Turn) -> usize {
    turn.task()
        .history
        .iter()
        .rposition(|message| **message == *turn.message())
        .unwrap_or(0)
}

/// What another agent says of its task, without what is between a server of our kind and itself.
pub(super) fn without_reserved_keys(metadata: &Object) -> Option<Object> {
    let mut passed = metadata.clone();
    // What is passed on all the same.
    let usage = passed.get(USAGE_KEY);
    passed.remove_prefixed(RESERVED_PREFIX);
    if let Some(usage) = usage {
        passed.insert(USAGE_KEY, usage);
    }
    (!passed.is_empty()).then_some(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_only_by_the_same_agent() {
        let record = RemoteTaskLink {
            task_id: Some("t".into()),
            ..RemoteTaskLink::new("here")
        };
        let task = Task {
            metadata: Some(record.to_metadata()),
            ..Task::default()
        };
        assert_eq!(RemoteTaskLink::from_task(&task, "here"), Some(record));
        assert_eq!(RemoteTaskLink::from_task(&task, "there"), None);
    }

    #[test]
    fn what_servers_keep_for_themselves_is_not_passed_on() {
        let said: Object = serde_json::from_str(
            r#"{"attache.remote": {"peer": "x"}, "attache.reason": "too-large", "attache.usage": {"n": 1}, "mine": 2}"#,
        )
        .unwrap();
        assert_eq!(
            without_reserved_keys(&said).unwrap().as_str(),
            r#"{"mine":2,"attache.usage":{"n": 1}}"#
        );
        assert_eq!(without_reserved_keys(&Object::new()), None);
    }
}
