//! Messages that a peer sends in a stream beside the events of its task.

use std::sync::Arc;

use crate::model::{Message, MessageId, Role, Task};

/// Messages of a stream in order of arrival. Chunks of a message, which have the same id, are joined.
#[derive(Debug, Default)]
pub(super) struct ReceivedMessages(Vec<Arc<Message>>);

impl ReceivedMessages {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains_id(&self, id: &MessageId) -> bool {
        !id.is_empty() && self.0.iter().any(|message| message.message_id == *id)
    }

    /// Adds a message, or a chunk of the last one, here and to the history of its task.
    pub(super) fn push(&mut self, message: &Message, task: Option<&mut Task>) {
        let last = self
            .0
            .last_mut()
            .filter(|last| !message.message_id.is_empty() && last.message_id == message.message_id);
        let Some(last) = last else {
            let message = Arc::new(message.clone());
            self.0.push(message.clone());
            if let Some(task) = task {
                task.history.push(message);
            }
            return;
        };
        let mut history = task.map(|task| task.history.iter_mut());
        let in_history = history
            .as_mut()
            .and_then(|all| all.rfind(|one| Arc::ptr_eq(one, last)));
        match in_history {
            Some(place) => {
                // Released, so that the message is changed in place.
                drop(std::mem::take(place));
                append_chunk(Arc::make_mut(last), message);
                *place = last.clone();
            }
            None => append_chunk(Arc::make_mut(last), message),
        }
    }

    /// Returns all messages as one.
    pub(super) fn joined(&self) -> Option<Message> {
        let (first, more) = self.0.split_first()?;
        let mut message = Message::clone(first);
        let parts = more.iter().flat_map(|one| one.parts.iter().cloned());
        message.parts.extend(parts);
        Some(message)
    }

    /// Adds the messages to the history of a copy of the task, unless it has them: behind the last message of the user,
    /// since the copy may end with the final answer.
    pub(super) fn restore(&self, task: &mut Task) {
        for message in &self.0 {
            let mut known = task.history.iter().chain(&task.status.message);
            if !known.any(|one| is_same(one, message)) {
                let at = insert_position(task, &self.0);
                task.history.insert(at, message.clone());
            }
        }
    }
}

/// Returns the position behind the last message of the user, and behind the messages that were already inserted there.
fn insert_position(task: &Task, inserted: &[Arc<Message>]) -> usize {
    let last_user = task.history.iter().rposition(|one| one.role == Role::User);
    let start = last_user.map_or(0, |last| last + 1);
    let is_inserted =
        |one: &&Arc<Message>| inserted.iter().any(|message| Arc::ptr_eq(one, message));
    start + task.history[start..].iter().take_while(is_inserted).count()
}

/// Whether two messages are the same, by their id or, without one, by their content.
fn is_same(one: &Message, other: &Message) -> bool {
    if one.message_id.is_empty() || other.message_id.is_empty() {
        return one.parts == other.parts;
    }
    one.message_id == other.message_id
}

/// Appends a chunk. A text continues the text before it.
fn append_chunk(message: &mut Message, chunk: &Message) {
    for part in &chunk.parts {
        let last = message.parts.last_mut();
        if !last.is_some_and(|last| last.append_text(part)) {
            message.parts.push(part.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(id: &str, text: &str) -> Message {
        Message {
            message_id: id.into(),
            ..Message::agent(text)
        }
    }

    fn texts(task: &Task) -> Vec<String> {
        task.history.iter().map(|message| message.text()).collect()
    }

    #[test]
    fn chunks_of_a_message_are_joined() {
        let mut messages = ReceivedMessages::default();
        let mut task = Task::default();
        for (id, text) in [
            ("1", "Hel"),
            ("1", "lo"),
            ("2", "there"),
            ("", "a"),
            ("", "b"),
        ] {
            messages.push(&chunk(id, text), Some(&mut task));
        }
        assert_eq!(texts(&task), ["Hello", "there", "a", "b"]);
        let mut copy = Task::default();
        messages.restore(&mut copy);
        assert_eq!(texts(&copy), texts(&task));
    }

    #[test]
    fn the_final_message_of_the_peer_is_not_doubled() {
        let mut messages = ReceivedMessages::default();
        messages.push(&chunk("thought", "hm"), None);
        messages.push(&chunk("1", "Hel"), None);
        let history = [chunk("q", "question"), chunk("1", "Hello!")];
        let mut task = Task {
            history: history.map(Arc::new).into(),
            ..Task::default()
        };
        Arc::make_mut(&mut task.history[0]).role = Role::User;
        messages.restore(&mut task);
        assert_eq!(texts(&task), ["question", "hm", "Hello!"]);
    }
}
