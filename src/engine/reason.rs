//! Why the engine itself moved a task: a word in the metadata.

use crate::model::{Event, Json, Message, MessageId, Object, Task, TaskState};

const REASON: &str = "attache.reason";
const TIMED_OUT: &str = "timed-out";

/// The agent broke a rule of the protocol (04 §3.8).
pub(super) const INVALID: &str = "invalid-agent-response";

/// The task has grown beyond its bound.
pub(super) const TOO_LARGE: &str = "too-large";

/// What is recorded of something that an agent says after the end of its turn.
pub(super) fn late_event() -> Event {
    Event::Ignored {
        reason: "said after the end of its turn".to_owned(),
    }
}

/// The metadata that gives a reason.
pub(super) fn metadata(reason: &str) -> Object {
    [(REASON, Json::from(reason))].into_iter().collect()
}

/// Whether a task failed because its agent broke a rule of the protocol.
pub(super) fn is_invalid_response(task: &Task) -> bool {
    task.status.state == TaskState::Failed && has_reason(task.metadata.as_ref(), INVALID)
}

/// What stands in the place of an answer that did not come.
pub(super) fn timeout_message(id: MessageId) -> Message {
    Message {
        message_id: id,
        metadata: Some(metadata(TIMED_OUT)),
        ..Message::agent("No answer came in time.")
    }
}

/// Whether a message stands for an answer that did not come.
pub(super) fn is_timeout_message(message: &Message) -> bool {
    has_reason(message.metadata.as_ref(), TIMED_OUT)
}

fn has_reason(metadata: Option<&Object>, reason: &str) -> bool {
    metadata
        .and_then(|metadata| metadata.get(REASON))
        .is_some_and(|known| known == Json::from(reason))
}

/// Makes a message what may come from outside: the word is ours alone.
pub(super) fn strip_reason(message: &mut Message) {
    if let Some(metadata) = &mut message.metadata
        && metadata.remove(REASON).is_some()
        && metadata.is_empty()
    {
        message.metadata = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_forge_the_timeout_reason() {
        let mut forged = timeout_message("m".into());
        assert!(is_timeout_message(&forged));
        strip_reason(&mut forged);
        assert!(!is_timeout_message(&forged));
        assert_eq!(forged.metadata, None);
        let mut other = Message {
            metadata: Some([("a", Json::from("b"))].into_iter().collect()),
            ..forged
        };
        let before = other.clone();
        strip_reason(&mut other);
        assert_eq!(other, before);
    }
}
