//! Reserved metadata: only the server sets keys with the prefix `attache.`, and callers receive only
//! the published ones (S53).

use std::borrow::Cow;
use std::sync::Arc;

use super::{
    Artifact, ListTasksResponse, Message, Object, Part, Response, SendMessageResponse,
    StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatus, TaskStatusUpdateEvent,
};

/// Prefix of the metadata keys that only the server sets.
pub(super) const RESERVED_PREFIX: &str = "attache.";

/// Reserved keys that callers may read; the documentation describes each. All other reserved keys are
/// internal, such as the position in a script.
const PUBLISHED_KEYS: [&str; 7] = [
    "attache.omitted",
    "attache.reason",
    "attache.remote",
    "attache.route",
    "attache.state",
    "attache.step",
    "attache.usage",
];

/// Value with metadata, of which callers receive all but the internal keys.
pub(crate) trait Publish: Clone {
    /// Whether any metadata has an internal key.
    fn has_internal_metadata(&self) -> bool;

    /// Removes the internal keys, and metadata that have no other.
    fn remove_internal_metadata(&mut self);

    /// Returns the value for callers. Copies it only if it has internal metadata.
    fn published(&self) -> Cow<'_, Self> {
        if !self.has_internal_metadata() {
            return Cow::Borrowed(self);
        }
        let mut published = self.clone();
        published.remove_internal_metadata();
        Cow::Owned(published)
    }
}

impl Publish for Object {
    fn has_internal_metadata(&self) -> bool {
        self.has_prefixed_except(RESERVED_PREFIX, &PUBLISHED_KEYS)
    }

    fn remove_internal_metadata(&mut self) {
        self.remove_prefixed_except(RESERVED_PREFIX, &PUBLISHED_KEYS);
    }
}

impl Publish for Option<Object> {
    fn has_internal_metadata(&self) -> bool {
        self.as_ref().is_some_and(Publish::has_internal_metadata)
    }

    fn remove_internal_metadata(&mut self) {
        if let Some(object) = self
            && object.has_internal_metadata()
        {
            object.remove_internal_metadata();
            if object.is_empty() {
                *self = None;
            }
        }
    }
}

impl<T: Publish> Publish for Vec<T> {
    fn has_internal_metadata(&self) -> bool {
        self.iter().any(Publish::has_internal_metadata)
    }

    fn remove_internal_metadata(&mut self) {
        self.iter_mut()
            .filter(|item| item.has_internal_metadata())
            .for_each(Publish::remove_internal_metadata);
    }
}

impl<T: Publish> Publish for Arc<T> {
    fn has_internal_metadata(&self) -> bool {
        T::has_internal_metadata(self)
    }

    fn remove_internal_metadata(&mut self) {
        Self::make_mut(self).remove_internal_metadata();
    }
}

impl Publish for Part {
    fn has_internal_metadata(&self) -> bool {
        self.metadata().is_some_and(Publish::has_internal_metadata)
    }

    fn remove_internal_metadata(&mut self) {
        self.update_metadata(Publish::remove_internal_metadata);
    }
}

impl Message {
    /// Returns the message without the metadata that only the server and its agents read, for peers and backends.
    #[must_use]
    pub fn without_internal_metadata(mut self) -> Self {
        self.remove_internal_metadata();
        self
    }
}

impl Task {
    /// Returns the task without the metadata that only the server and its agents read, for backends.
    #[must_use]
    pub fn without_internal_metadata(mut self) -> Self {
        self.remove_internal_metadata();
        self
    }
}

/// Implements [`Publish`] for a struct by its members.
macro_rules! publish_members {
    ($($type:ty: $($member:ident),+;)*) => {$(
        impl Publish for $type {
            fn has_internal_metadata(&self) -> bool {
                $(self.$member.has_internal_metadata())||+
            }

            fn remove_internal_metadata(&mut self) {
                $(self.$member.remove_internal_metadata();)+
            }
        }
    )*};
}

publish_members! {
    Message: metadata, parts;
    Artifact: metadata, parts;
    Task: metadata, status, artifacts, history;
    TaskStatusUpdateEvent: metadata, status;
    TaskArtifactUpdateEvent: metadata, artifact;
    ListTasksResponse: tasks;
}

impl Publish for TaskStatus {
    fn has_internal_metadata(&self) -> bool {
        self.message
            .as_ref()
            .is_some_and(Publish::has_internal_metadata)
    }

    fn remove_internal_metadata(&mut self) {
        if let Some(message) = &mut self.message {
            message.remove_internal_metadata();
        }
    }
}

impl Publish for StreamResponse {
    fn has_internal_metadata(&self) -> bool {
        match self {
            Self::Task(task) => task.has_internal_metadata(),
            Self::Message(message) => message.has_internal_metadata(),
            Self::StatusUpdate(event) => event.has_internal_metadata(),
            Self::ArtifactUpdate(event) => event.has_internal_metadata(),
        }
    }

    fn remove_internal_metadata(&mut self) {
        match self {
            Self::Task(task) => task.remove_internal_metadata(),
            Self::Message(message) => message.remove_internal_metadata(),
            Self::StatusUpdate(event) => event.remove_internal_metadata(),
            Self::ArtifactUpdate(event) => event.remove_internal_metadata(),
        }
    }
}

impl Publish for SendMessageResponse {
    fn has_internal_metadata(&self) -> bool {
        match self {
            Self::Task(task) => task.has_internal_metadata(),
            Self::Message(message) => message.has_internal_metadata(),
        }
    }

    fn remove_internal_metadata(&mut self) {
        match self {
            Self::Task(task) => task.remove_internal_metadata(),
            Self::Message(message) => message.remove_internal_metadata(),
        }
    }
}

impl Publish for Response {
    fn has_internal_metadata(&self) -> bool {
        match self {
            Self::SendMessage(response) => response.has_internal_metadata(),
            Self::Task(task) => task.has_internal_metadata(),
            Self::ListTasks(page) => page.has_internal_metadata(),
            Self::PushConfig(_) | Self::ListPushConfigs(_) | Self::Empty | Self::AgentCard(_) => {
                false
            }
        }
    }

    fn remove_internal_metadata(&mut self) {
        match self {
            Self::SendMessage(response) => response.remove_internal_metadata(),
            Self::Task(task) => task.remove_internal_metadata(),
            Self::ListTasks(page) => page.remove_internal_metadata(),
            Self::PushConfig(_) | Self::ListPushConfigs(_) | Self::Empty | Self::AgentCard(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(text: &str) -> Option<Object> {
        Some(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn s53_published_values_have_no_internal_metadata() {
        let internal = r#"{"attache.script": {"rule": 1}}"#;
        let mixed = r#"{"attache.script": 1, "mine": 2, "attache.usage": {"calls": 1}}"#;
        let message = |text: &str| Message {
            metadata: metadata(text),
            ..Message::agent("x")
        };
        let task = Task {
            metadata: metadata(mixed),
            status: TaskStatus::default().with_message(message(internal)),
            artifacts: vec![Artifact {
                metadata: metadata(internal),
                parts: vec![
                    Part::text("x").with_metadata(metadata(mixed).unwrap()),
                    Part::text("y").with_metadata(metadata(internal).unwrap()),
                ],
                ..Artifact::default()
            }],
            history: vec![Arc::new(message(mixed)), Arc::new(message("{}"))],
            ..Task::default()
        };
        let published = task.published();
        let text = serde_json::to_string(&*published).unwrap();
        assert!(!text.contains("attache.script"), "{text}");
        assert_eq!(text.matches(r#""mine":2"#).count(), 3, "{text}");
        assert_eq!(text.matches("attache.usage").count(), 3, "{text}");
        assert_eq!(published.artifacts[0].metadata, None);
        assert!(published.artifacts[0].parts[1].is_plain());
        assert_eq!(published.history[1].metadata, metadata("{}"));
    }

    #[test]
    fn values_without_internal_metadata_are_not_copied() {
        let task = Task {
            metadata: metadata(r#"{"attache.reason": "expired", "a": "attache.script"}"#),
            ..Task::default()
        };
        assert!(matches!(task.published(), Cow::Borrowed(_)));
        // A name with an escape is compared after decoding.
        let task = Task {
            metadata: metadata(r#"{"attache\u002escript": 1}"#),
            ..Task::default()
        };
        assert_eq!(task.published().metadata, None);
    }
}
