//! Why the engine itself moved a task: a word in the metadata.

use crate::model::{Json, Message, MessageId, Object};

const REASON: &str = "attache.reason";
const TIMED_OUT: &str = "timed-out";

/// The metadata that gives a reason.
pub(super) fn metadata(reason: &str) -> Object {
    [(REASON, Json::from(reason))].into_iter().collect()
}

/// What stands in the place of an answer that did not come.
pub(super) fn silence(id: MessageId) -> Message {
    Message {
        message_id: id,
        metadata: Some(metadata(TIMED_OUT)),
        ..Message::agent("No answer came in time.")
    }
}

/// Whether a message stands for an answer that did not come.
pub(super) fn is_silence(message: &Message) -> bool {
    let reason = message.metadata.as_ref().and_then(|metadata| metadata.get(REASON));
    reason.is_some_and(|reason| reason == Json::from(TIMED_OUT))
}

/// A message as it may come from outside: the word is ours alone.
pub(super) fn from_outside(mut message: Message) -> Message {
    if let Some(metadata) = &mut message.metadata
        && metadata.remove(REASON).is_some()
        && metadata.is_empty()
    {
        message.metadata = None;
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_outside_can_say_that_no_answer_came() {
        let silence = silence("m".into());
        assert!(is_silence(&silence));
        let forged = from_outside(silence);
        assert!(!is_silence(&forged));
        assert_eq!(forged.metadata, None);
        let other = Message { metadata: Some([("a", Json::from("b"))].into_iter().collect()), ..forged };
        assert_eq!(from_outside(other.clone()), other);
    }
}
