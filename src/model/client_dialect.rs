//! Dialects of clients that a task remembers.

#[cfg(feature = "server")]
use super::{Content, Part, SendMessageRequest};
use super::{Message, Object, Task};

/// Metadata key of the dialect. It is internal: callers do not receive it.
const DIALECT_KEY: &str = "attache.dialect";

/// Metadata key of a data part whose own metadata name a tool kind. It is internal like the dialect.
const FORM_KEY: &str = "attache.form";

/// Metadata key for the 0.x kind of a data part.
pub(crate) const KIND_KEY: &str = "kind";

/// Whether a kind is that of a tool part, which clients that run tools send and understand.
pub(crate) fn is_tool_kind(kind: &str) -> bool {
    matches!(kind, "tool-use" | "tool-result")
}

/// Whether the metadata are those of a part that its client sent as a data part, whatever kind they name.
pub(crate) fn is_sent_as_data(metadata: &Object) -> bool {
    metadata.get(FORM_KEY).is_some()
}

/// Dialect of a client, recognized by its message. The log keeps it, so that later responses about the
/// task have the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientDialect {
    /// KAOS: names of 1.0, shapes of older versions (09, S0).
    Kaos,
    /// 0.x with the parts `tool-use` and `tool-result` (09, 2.9).
    Tools,
}

impl ClientDialect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Kaos => "kaos",
            Self::Tools => "tools",
        }
    }

    fn from_metadata(metadata: Option<&Object>) -> Option<Self> {
        let name: String = metadata?.get(DIALECT_KEY)?.read().ok()?;
        [Self::Kaos, Self::Tools]
            .into_iter()
            .find(|dialect| dialect.as_str() == name)
    }

    fn insert_into(self, metadata: &mut Option<Object>) {
        metadata
            .get_or_insert_default()
            .insert(DIALECT_KEY, self.as_str());
    }
}

#[cfg(feature = "server")]
impl SendMessageRequest {
    /// Records the dialect of the client in the metadata of the message, and the data parts that must not
    /// become tool parts in the metadata of these parts. The reserved metadata of the client must have been
    /// removed before.
    pub(crate) fn record_dialect(&mut self) {
        if let Some(dialect) = self.dialect {
            dialect.insert_into(&mut self.message.metadata);
        }
        for (position, part) in self.message.parts.iter_mut().enumerate() {
            if names_tool_kind(part) && !self.tool_parts.contains(&position) {
                part.update_metadata(|metadata| {
                    metadata.get_or_insert_default().insert(FORM_KEY, "data");
                });
            }
        }
    }
}

/// Whether the metadata of a data part name the kind of a tool part.
#[cfg(feature = "server")]
fn names_tool_kind(part: &Part) -> bool {
    let kind = part.metadata().and_then(|metadata| metadata.get(KIND_KEY));
    let kind = kind.and_then(|kind| kind.read::<String>().ok());
    matches!(part.content, Content::Data(_)) && kind.is_some_and(|kind| is_tool_kind(&kind))
}

impl Message {
    /// Returns the dialect of the client that sent this message.
    #[must_use]
    pub fn client_dialect(&self) -> Option<ClientDialect> {
        ClientDialect::from_metadata(self.metadata.as_ref())
    }
}

impl Task {
    /// Returns the dialect of the client that sent the last message with one.
    #[must_use]
    pub fn client_dialect(&self) -> Option<ClientDialect> {
        ClientDialect::from_metadata(self.metadata.as_ref())
    }

    /// Copies the dialect of another task.
    #[cfg(feature = "server")]
    pub(super) fn copy_dialect(&mut self, task: &Self) {
        if let Some(dialect) = task.client_dialect() {
            dialect.insert_into(&mut self.metadata);
        }
    }

    /// Keeps the dialect of a message.
    pub(super) fn keep_dialect(&mut self, message: &Message) {
        if let Some(dialect) = message.client_dialect() {
            dialect.insert_into(&mut self.metadata);
        }
    }
}
