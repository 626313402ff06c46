//! Reasons for state changes made by the engine, as a value in the metadata (`attache.reason`).

use crate::model::{Event, Json, Message, MessageId, Object, Task, TaskState};

const REASON: &str = "attache.reason";
const TIMED_OUT: &str = "timed-out";

/// The agent violated the protocol (04 §3.8).
pub(super) const INVALID: &str = "invalid-agent-response";

/// The process ended while the task was running.
pub(super) const INTERRUPTED: &str = "interrupted";

/// The task waited longer than its limit.
pub(super) const EXPIRED: &str = "expired";

/// The task exceeded `max_task_bytes`.
pub(super) const TOO_LARGE: &str = "too-large";

/// The stored log of the task is damaged.
pub(super) const DAMAGED: &str = "damaged";

/// A hook denied an event of the agent.
pub(super) const DENIED: &str = "denied";

/// Returns the entry which records that an event after the end of its turn was ignored.
pub(super) fn late_event() -> Event {
    Event::Ignored {
        reason: "event after the end of its turn".to_owned(),
    }
}

/// Returns metadata with a reason.
pub(super) fn metadata(reason: &str) -> Object {
    [(REASON, Json::from(reason))].into_iter().collect()
}

/// Returns whether a task failed because its agent violated the protocol.
pub(super) fn is_invalid_response(task: &Task) -> bool {
    task.status.state == TaskState::Failed && has_reason(task.metadata.as_ref(), INVALID)
}

/// Returns the message that replaces an answer which did not arrive in time.
pub(super) fn timeout_message(id: MessageId) -> Message {
    Message {
        message_id: id,
        metadata: Some(metadata(TIMED_OUT)),
        ..Message::agent("No answer came in time.")
    }
}

/// Returns whether a message was made by [`timeout_message`].
pub(super) fn is_timeout_message(message: &Message) -> bool {
    has_reason(message.metadata.as_ref(), TIMED_OUT)
}

fn has_reason(metadata: Option<&Object>, reason: &str) -> bool {
    metadata
        .and_then(|metadata| metadata.get(REASON))
        .is_some_and(|value| value == Json::from(reason))
}

/// Removes the reason from a message of a client, so that clients cannot forge one.
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
