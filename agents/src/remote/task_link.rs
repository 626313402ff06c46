//! Link from our task to the remote one, stored in the metadata of our task so that it survives a restart.

use attache::Turn;
use attache::model::{ContextId, Json, MessageId, Object, Task, TaskId};
use serde::{Deserialize, Serialize};

use crate::cost::USAGE_KEY;

/// Metadata key of the link. Callers cannot set keys with the reserved prefix.
const LINK_KEY: &str = "attache.remote";
/// Prefix of the metadata keys that only the server itself may set.
const RESERVED_PREFIX: &str = "attache.";

/// Link to the remote task of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RemoteTaskLink {
    /// Hashed URL of the remote agent. A router may hand one task to different remote agents.
    peer: String,
    /// Remote task id; `None` if the remote agent replied with a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<TaskId>,
    /// Remote context id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<ContextId>,
    /// Id of the last message that the remote agent acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<MessageId>,
    /// Position of that message in the history. Some callers use the same id for every message.
    #[serde(rename = "place", skip_serializing_if = "Option::is_none")]
    pub(super) message_index: Option<usize>,
    /// Caller named in the delegation token. A later cancel must name the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<String>,
}

impl RemoteTaskLink {
    /// Reads the link of a task. Returns `None` if it belongs to another remote agent.
    pub(super) fn from_task(task: &Task, peer: &str) -> Option<Self> {
        let link = task.metadata.as_ref()?.get(LINK_KEY)?;
        link.read::<Self>().ok().filter(|link| link.peer == peer)
    }

    pub(super) fn new(peer: &str) -> Self {
        Self {
            peer: peer.to_owned(),
            ..Self::default()
        }
    }

    /// Records that the remote agent acknowledged the message of this turn.
    pub(super) fn record_delivery(&mut self, turn: &Turn) {
        self.message_id = Some(turn.message().message_id.clone());
        self.message_index = Some(message_index(turn));
    }

    /// Returns whether the remote agent acknowledged the message of this turn.
    pub(super) fn is_delivered(&self, turn: &Turn) -> bool {
        self.message_id.as_ref() == Some(&turn.message().message_id)
            && self
                .message_index
                .is_none_or(|index| index == message_index(turn))
    }

    pub(super) fn to_metadata(&self) -> Object {
        let link = Json::from_serialize(self).unwrap_or_default();
        [(LINK_KEY, link)].into_iter().collect()
    }
}

/// Returns the position of the turn's message in the history of its task.
pub(super) fn message_index(turn: &Turn) -> usize {
    turn.task()
        .history
        .iter()
        .rposition(|message| **message == *turn.message())
        .unwrap_or(0)
}

/// Returns the metadata of a remote task without reserved keys; `None` if nothing is left.
pub(super) fn without_reserved_keys(metadata: &Object) -> Option<Object> {
    let mut passed = metadata.clone();
    // The cost of the remote task is part of the cost of ours.
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
    fn a_link_is_read_only_for_the_same_remote_agent() {
        let link = RemoteTaskLink {
            task_id: Some("t".into()),
            ..RemoteTaskLink::new("here")
        };
        let task = Task {
            metadata: Some(link.to_metadata()),
            ..Task::default()
        };
        assert_eq!(RemoteTaskLink::from_task(&task, "here"), Some(link));
        assert_eq!(RemoteTaskLink::from_task(&task, "there"), None);
    }

    #[test]
    fn reserved_metadata_is_not_forwarded() {
        let metadata: Object = serde_json::from_str(
            r#"{"attache.remote": {"peer": "x"}, "attache.reason": "too-large", "attache.usage": {"n": 1}, "mine": 2}"#,
        )
        .unwrap();
        assert_eq!(
            without_reserved_keys(&metadata).unwrap().as_str(),
            r#"{"mine":2,"attache.usage":{"n": 1}}"#
        );
        assert_eq!(without_reserved_keys(&Object::new()), None);
    }
}
