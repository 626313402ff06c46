//! Messages and the parts they are made of.

use std::borrow::Cow;
use std::fmt;

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::{
    Base64, ContextId, Json, Limits, MessageId, Object, TaskId, Violation, non_empty, or_default,
};

/// The extension under which a question to the client rides in the metadata of a message.
pub const INPUT_REQUEST: &str = "urn:attache:ext:input-request:v1";
/// Under this name the metadata of a message says whose work it is part of, and what may still be spent on it.
pub const LINEAGE: &str = "urn:attache:ext:lineage:v1";

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    /// Left out; only ever read.
    #[default]
    Unspecified,
    /// The client.
    User,
    /// The server.
    Agent,
}

impl Role {
    /// The name 1.0 gives it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "ROLE_UNSPECIFIED",
            Self::User => "ROLE_USER",
            Self::Agent => "ROLE_AGENT",
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One thing said, by a client or by an agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Made by the sender.
    #[serde(default, alias = "message_id", deserialize_with = "or_default")]
    pub message_id: MessageId,
    /// Who speaks.
    #[serde(default, deserialize_with = "or_default")]
    pub role: Role,
    /// What is said; at least one part.
    #[serde(default, deserialize_with = "or_default")]
    pub parts: Vec<Part>,
    /// The conversation it belongs to.
    #[serde(
        default,
        alias = "context_id",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub context_id: Option<ContextId>,
    /// The task it belongs to.
    #[serde(
        default,
        alias = "task_id",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_id: Option<TaskId>,
    /// Tasks it refers to: a hint, unknown ids are no error.
    #[serde(
        default,
        alias = "reference_task_ids",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub reference_task_ids: Vec<TaskId>,
    /// The extensions that contributed to it, by URI.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub extensions: Vec<String>,
    /// Whatever else the sender wants to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

impl Message {
    /// A message of one part or text from the client, with a fresh id.
    pub fn user(part: impl Into<Part>) -> Self {
        Self::new(Role::User, part)
    }

    /// A message of one part or text from the agent, with a fresh id.
    pub fn agent(part: impl Into<Part>) -> Self {
        Self::new(Role::Agent, part)
    }

    fn new(role: Role, part: impl Into<Part>) -> Self {
        Self {
            message_id: MessageId::random(),
            role,
            parts: vec![part.into()],
            ..Self::default()
        }
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: impl Into<Part>) -> Self {
        self.parts.push(part.into());
        self
    }

    /// Says which task it continues.
    #[must_use]
    pub fn in_task(mut self, id: impl Into<TaskId>) -> Self {
        self.task_id = Some(id.into());
        self
    }

    /// Says which conversation it belongs to.
    #[must_use]
    pub fn in_context(mut self, id: impl Into<ContextId>) -> Self {
        self.context_id = Some(id.into());
        self
    }

    /// Its text parts, a line each.
    #[must_use]
    pub fn text(&self) -> String {
        joined_text(&self.parts)
    }

    /// Checks a message that a client sent; `field` names its place.
    pub(super) fn check(&self, field: &str, limits: &Limits) -> Result<(), Violation> {
        // Names are put together only for what is wrong.
        let field_path = |name: &str| format!("{field}.{name}");
        let named = |name: &str, wrong: Violation| {
            Violation::new(field_path(name), wrong.description().to_owned())
        };
        self.message_id
            .check("")
            .map_err(|wrong| named("messageId", wrong))?;
        if self.role == Role::Unspecified {
            return Err(Violation::new(
                field_path("role"),
                "must be ROLE_USER or ROLE_AGENT",
            ));
        }
        if self.parts.is_empty() {
            return Err(Violation::new(
                field_path("parts"),
                "must contain at least one element",
            ));
        }
        if self.parts.len() > limits.max_parts {
            let most = format!(
                "must contain at most {} elements (max_parts)",
                limits.max_parts
            );
            return Err(Violation::new(field_path("parts"), most));
        }
        if let Some(id) = &self.context_id {
            id.check("").map_err(|wrong| named("contextId", wrong))?;
        }
        if let Some(id) = &self.task_id {
            id.check("").map_err(|wrong| named("taskId", wrong))?;
        }
        for (number, id) in self.reference_task_ids.iter().enumerate() {
            id.check("")
                .map_err(|wrong| named(&format!("referenceTaskIds[{number}]"), wrong))?;
        }
        Ok(())
    }
}

/// The text parts, a line each.
pub(super) fn joined_text(parts: &[Part]) -> String {
    parts
        .iter()
        .filter_map(Part::as_text)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A piece of a message or an artifact: text, a file, or data.
#[derive(Clone, PartialEq)]
pub struct Part {
    /// What it holds.
    pub content: Content,
    extras: Option<Box<PartExtras>>,
}

/// What a part holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Plain text; may be empty.
    Text(String),
    /// A file by its bytes.
    Raw(Base64),
    /// A file by its address. Never fetched unasked.
    Url(Box<str>),
    /// Any JSON value, `null` included.
    Data(Json),
}

/// What few parts have, kept apart so that the many stay small.
#[derive(Debug, Clone, PartialEq, Default)]
struct PartExtras {
    metadata: Option<Object>,
    filename: Option<String>,
    media_type: Option<String>,
}

impl Part {
    /// Plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text(text.into()).into()
    }

    /// A file by its bytes.
    pub fn file(bytes: impl AsRef<[u8]>, media_type: impl Into<String>) -> Self {
        Self::from(Content::Raw(Base64::encode(bytes))).with_media_type(media_type)
    }

    /// A file by its address.
    pub fn url(url: impl Into<Box<str>>) -> Self {
        Content::Url(url.into()).into()
    }

    /// Any JSON value.
    pub fn data(value: impl Into<Json>) -> Self {
        Content::Data(value.into()).into()
    }

    /// Adds metadata; an empty object is kept as it is.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Object) -> Self {
        self.extras().metadata = Some(metadata);
        self
    }

    /// Names the file.
    #[must_use]
    pub fn with_filename(mut self, name: impl Into<String>) -> Self {
        self.extras().filename = Some(name.into());
        self
    }

    /// Says what the content is.
    #[must_use]
    pub fn with_media_type(mut self, media_type: impl Into<String>) -> Self {
        self.extras().media_type = Some(media_type.into());
        self
    }

    /// Metadata, if any.
    #[must_use]
    pub fn metadata(&self) -> Option<&Object> {
        self.extras.as_ref()?.metadata.as_ref()
    }

    /// Its metadata, to change it.
    pub(super) fn metadata_mut(&mut self) -> Option<&mut Object> {
        self.extras.as_mut()?.metadata.as_mut()
    }

    /// The name of the file, if any.
    #[must_use]
    pub fn filename(&self) -> Option<&str> {
        self.extras.as_ref()?.filename.as_deref()
    }

    /// The media type, if any.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        self.extras.as_ref()?.media_type.as_deref()
    }

    /// The text of a text part.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
        }
    }

    /// Whether it has nothing but its content.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.extras.is_none()
    }

    fn extras(&mut self) -> &mut PartExtras {
        self.extras.get_or_insert_default()
    }

    /// Text that follows text in one artifact belongs together: takes `next` in and says whether it could.
    pub(super) fn append_text(&mut self, next: &Self) -> bool {
        let plain = self.is_plain() && next.is_plain();
        match (&mut self.content, &next.content) {
            (Content::Text(text), Content::Text(more)) if plain => {
                text.push_str(more);
                true
            }
            _ => false,
        }
    }
}

impl From<Content> for Part {
    fn from(content: Content) -> Self {
        Self {
            content,
            extras: None,
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Part {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Cow<'_, str>> for Part {
    fn from(text: Cow<'_, str>) -> Self {
        Self::text(text)
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("Part");
        debug.field(&self.content);
        if let Some(extras) = &self.extras {
            debug.field(extras);
        }
        debug.finish()
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            Content::Text(text) => map.serialize_entry("text", text)?,
            Content::Raw(bytes) => map.serialize_entry("raw", bytes)?,
            Content::Url(url) => map.serialize_entry("url", url)?,
            Content::Data(data) => map.serialize_entry("data", data)?,
        }
        if let Some(extras) = &self.extras {
            extras.serialize_into(&mut map)?;
        }
        map.end()
    }
}

impl PartExtras {
    fn serialize_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if let Some(name) = self.filename.as_ref().filter(|name| !name.is_empty()) {
            map.serialize_entry("filename", name)?;
        }
        if let Some(media_type) = self
            .media_type
            .as_ref()
            .filter(|media_type| !media_type.is_empty())
        {
            map.serialize_entry("mediaType", media_type)?;
        }
        if let Some(metadata) = &self.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_easily_made_by_hand() {
        let message =
            Message::user("hi").part(Part::file(b"abc", "text/plain").with_filename("a.txt"));
        assert_eq!(message.role, Role::User);
        assert_eq!(message.text(), "hi");
        assert_eq!(message.parts[1].media_type(), Some("text/plain"));
        assert_ne!(
            Message::agent("x").message_id,
            Message::agent("x").message_id
        );
    }

    #[test]
    fn a_part_is_small_and_a_large_one_does_not_print() {
        assert!(std::mem::size_of::<Part>() <= 32);
        assert_eq!(
            format!("{:?}", Part::from(Content::Raw(Base64::encode(b"secret")))),
            "Part(Raw(<6 bytes>))"
        );
    }

    #[test]
    fn metadata_and_names_stand_beside_the_content() {
        let part = Part::data(serde_json::json!([1]))
            .with_media_type("a/b")
            .with_metadata(Object::new());
        assert_eq!(
            serde_json::to_string(&part).unwrap(),
            r#"{"data":[1],"mediaType":"a/b","metadata":{}}"#
        );
    }
}
