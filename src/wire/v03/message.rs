//! Messages, parts and artifacts in 0.3 JSON.

use serde::de;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};

use super::part::{ObjectOrText, V03Part};
use super::{Audience, V03};
use crate::model::{
    Artifact, ArtifactId, Content, ContextId, INPUT_REQUEST, Json, KIND_KEY, Message, MessageId,
    Object, Part, Publish, Role, TaskId, int32, is_sent_as_data, is_tool_kind, non_empty,
    or_default,
};
use crate::wire::json::field_error;
use crate::wire::lenient::v03_role_name;
use crate::wire::part::{NamedKind, WRAPPED_DATA_KEY};

impl<'a> V03<'a, Part> {
    /// Returns the metadata to write, without internal keys. `wrapped` adds the marker for wrapped data; `restored`
    /// removes the stored kind.
    fn metadata(&self, wrapped: bool, restored: bool) -> Option<Object> {
        let mut metadata = self.0.metadata().cloned();
        if self.1.needs_publishing() {
            metadata.remove_internal_metadata();
        }
        if restored {
            metadata.as_mut()?.remove(KIND_KEY);
            metadata = metadata.filter(|metadata| !metadata.is_empty());
        }
        if wrapped {
            metadata
                .get_or_insert_default()
                .insert(WRAPPED_DATA_KEY, serde_json::Value::Bool(true));
        }
        metadata
    }

    fn write_kind<M: SerializeMap>(&self, map: &mut M, kind: &str) -> Result<(), M::Error> {
        match self.1 {
            Audience::V03 | Audience::Tools => map.serialize_entry("kind", kind),
            Audience::Kaos => map.serialize_entry("type", kind),
            Audience::V01(_) => {
                map.serialize_entry("kind", kind)?;
                map.serialize_entry("type", kind)
            }
        }
    }

    /// Returns the kind and members of a tool part, for clients that run tools. All others get a data
    /// part, because their SDKs refuse unknown kinds.
    fn tool_part(&self, data: &Json) -> Option<(String, Object)> {
        if !matches!(self.1, Audience::Tools) {
            return None;
        }
        let metadata = self.0.metadata()?;
        if is_sent_as_data(metadata) {
            return None;
        }
        let kind: String = metadata.get(KIND_KEY)?.read().ok()?;
        let members = Object::try_from(data.clone()).ok()?;
        let clash = members.get("kind").is_some() || members.get("metadata").is_some();
        (!clash && is_tool_kind(&kind)).then_some((kind, members))
    }
}

/// File object of a part, or wrapper of data.
struct V03InnerObject<'a>(Vec<(&'static str, InnerValue<'a>)>);

enum InnerValue<'a> {
    Text(&'a str),
    Json(&'a Json),
}

impl Serialize for V03InnerObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            match value {
                InnerValue::Text(text) => map.serialize_entry(name, text)?,
                InnerValue::Json(json) => map.serialize_entry(name, json)?,
            }
        }
        map.end()
    }
}

fn file<'a>(part: &'a Part, name: &'static str, content: &'a str) -> V03InnerObject<'a> {
    let mut members = vec![(name, InnerValue::Text(content))];
    members.extend(
        part.media_type()
            .map(|media_type| ("mimeType", InnerValue::Text(media_type))),
    );
    members.extend(part.filename().map(|name| ("name", InnerValue::Text(name))));
    V03InnerObject(members)
}

impl Serialize for V03<'_, Part> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut wrapped = false;
        let mut restored = false;
        match &self.0.content {
            Content::Text(text) => {
                self.write_kind(&mut map, "text")?;
                map.serialize_entry("text", text)?;
            }
            Content::Raw(bytes) => {
                self.write_kind(&mut map, "file")?;
                map.serialize_entry("file", &file(self.0, "bytes", bytes.as_str()))?;
            }
            Content::Url(url) => {
                self.write_kind(&mut map, "file")?;
                map.serialize_entry("file", &file(self.0, "uri", url))?;
            }
            Content::Data(data) => match self.tool_part(data) {
                Some((kind, members)) => {
                    restored = true;
                    self.write_kind(&mut map, &kind)?;
                    for (name, value) in members.iter() {
                        map.serialize_entry(&name, &value)?;
                    }
                }
                None => {
                    self.write_kind(&mut map, "data")?;
                    wrapped = !data.is_object();
                    if wrapped {
                        let wrapper = V03InnerObject(vec![("value", InnerValue::Json(data))]);
                        map.serialize_entry("data", &wrapper)?;
                    } else {
                        map.serialize_entry("data", data)?;
                    }
                }
            },
        }
        if let Some(metadata) = non_empty_metadata(&self.metadata(wrapped, restored)) {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// Returns metadata unless it is empty. Versions before 1.0 omit an empty object (08 §3).
pub(in crate::wire) fn non_empty_metadata(metadata: &Option<Object>) -> Option<&Object> {
    metadata.as_ref().filter(|metadata| !metadata.is_empty())
}

/// List of objects in 0.3 JSON.
pub(in crate::wire) struct V03List<'a, T>(
    pub(in crate::wire) &'a [T],
    pub(in crate::wire) Audience<'a>,
);

impl<T> Serialize for V03List<'_, T>
where
    for<'b> V03<'b, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|item| V03(item, self.1)))
    }
}

impl Serialize for V03<'_, std::sync::Arc<Message>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        V03(&**self.0, self.1).serialize(serializer)
    }
}

impl Serialize for V03<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(message, audience) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "message")?;
        map.serialize_entry("messageId", &message.message_id)?;
        map.serialize_entry("role", v03_role_name(message.role))?;
        map.serialize_entry("parts", &V03List(&message.parts, audience))?;
        if let Some(id) = &message.context_id {
            map.serialize_entry("contextId", id)?;
        }
        if let Some(id) = &message.task_id {
            map.serialize_entry("taskId", id)?;
        }
        if !message.reference_task_ids.is_empty() {
            map.serialize_entry("referenceTaskIds", &message.reference_task_ids)?;
        }
        if !message.extensions.is_empty() {
            map.serialize_entry("extensions", &message.extensions)?;
        }
        if let Some(metadata) = non_empty_metadata(&audience.metadata(&message.metadata)) {
            map.serialize_entry("metadata", metadata)?;
            if let Some(request) = metadata.get(INPUT_REQUEST) {
                map.serialize_entry("inputRequest", &request)?;
            }
        }
        map.end()
    }
}

impl Serialize for V03<'_, Artifact> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(artifact, audience) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &artifact.artifact_id)?;
        if let Some(name) = &artifact.name {
            map.serialize_entry("name", name)?;
        }
        if let Some(description) = &artifact.description {
            map.serialize_entry("description", description)?;
        }
        map.serialize_entry("parts", &V03List(&artifact.parts, audience))?;
        if !artifact.extensions.is_empty() {
            map.serialize_entry("extensions", &artifact.extensions)?;
        }
        if let Some(metadata) = non_empty_metadata(&audience.metadata(&artifact.metadata)) {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// Message of 0.1 to 0.3. `PROTO` selects the ProtoJSON of 0.3 REST.
pub(in crate::wire) struct V03Message<const PROTO: bool>(pub(in crate::wire) Message);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct V03MessageMembers<const PROTO: bool> {
    kind: Option<String>,
    #[serde(default, alias = "message_id", deserialize_with = "or_default")]
    message_id: MessageId,
    #[serde(default, deserialize_with = "or_default")]
    role: Role,
    #[serde(default, alias = "content", deserialize_with = "or_default")]
    parts: Vec<V03Part<PROTO>>,
    #[serde(default, alias = "context_id", deserialize_with = "non_empty")]
    context_id: Option<ContextId>,
    #[serde(default, alias = "task_id", deserialize_with = "non_empty")]
    task_id: Option<TaskId>,
    #[serde(default, alias = "reference_task_ids", deserialize_with = "or_default")]
    reference_task_ids: Vec<TaskId>,
    #[serde(default, deserialize_with = "or_default")]
    extensions: Vec<String>,
    metadata: Option<Object>,
    input_request: Option<Json>,
}

impl<const PROTO: bool> V03MessageMembers<PROTO> {
    fn into_message<E: de::Error>(self) -> Result<Message, E> {
        if self.kind.is_some_and(|kind| kind != "message") {
            return Err(field_error("kind", "must be message"));
        }
        let mut metadata = self.metadata;
        if let Some(request) = self.input_request {
            metadata
                .get_or_insert_default()
                .insert(INPUT_REQUEST, request);
        }
        Ok(Message {
            message_id: self.message_id,
            role: self.role,
            parts: self.parts.into_iter().map(|read| read.part).collect(),
            context_id: self.context_id,
            task_id: self.task_id,
            reference_task_ids: self.reference_task_ids,
            extensions: self.extensions,
            metadata,
        })
    }
}

impl<'de, const PROTO: bool> Deserialize<'de> for V03Message<PROTO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = V03MessageMembers::<PROTO>::deserialize(deserializer)?;
        read.into_message().map(Self)
    }
}

/// Message of a client, and the kinds that it names.
pub(in crate::wire) struct V03SentMessage<const PROTO: bool> {
    pub(in crate::wire) message: Message,
    /// Whether the message has a `kind`, or any part a `kind` or `type`.
    pub(in crate::wire) has_kinds: bool,
    /// Positions of the tool parts.
    pub(in crate::wire) tool_parts: Vec<usize>,
}

impl<'de, const PROTO: bool> Deserialize<'de> for V03SentMessage<PROTO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = V03MessageMembers::<PROTO>::deserialize(deserializer)?;
        let mut kinds = read.parts.iter().map(|part| part.kind);
        let is_tool = |(_, kind): &(usize, NamedKind)| *kind == NamedKind::Tool;
        let tool_parts = kinds.clone().enumerate().filter(is_tool);
        let tool_parts = tool_parts.map(|(position, _)| position).collect();
        let has_kinds = read.kind.is_some() || kinds.any(|kind| kind != NamedKind::Absent);
        Ok(Self {
            message: read.into_message()?,
            has_kinds,
            tool_parts,
        })
    }
}

impl<const PROTO: bool> From<String> for V03Message<PROTO> {
    /// Converts the plain text that KAOS sends as status message (09, 0.9).
    fn from(text: String) -> Self {
        Self(Message {
            role: Role::Agent,
            parts: vec![Part::text(text)],
            ..Message::default()
        })
    }
}

/// Message, or a text in its place.
pub(super) type V03MessageOrText<const PROTO: bool> = ObjectOrText<V03Message<PROTO>>;

/// Artifact of 0.1 to 0.3, with the chunk flags that 0.1 puts inside it.
pub(super) struct V03Artifact<const PROTO: bool> {
    pub(super) artifact: Artifact,
    pub(super) append: bool,
    pub(super) last_chunk: bool,
}

impl<'de, const PROTO: bool> Deserialize<'de> for V03Artifact<PROTO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct V03MessageMembers<const PROTO: bool> {
            #[serde(default, alias = "artifact_id", deserialize_with = "non_empty")]
            artifact_id: Option<ArtifactId>,
            #[serde(default, deserialize_with = "non_empty")]
            name: Option<String>,
            #[serde(default, deserialize_with = "non_empty")]
            description: Option<String>,
            #[serde(default, deserialize_with = "or_default")]
            parts: Vec<V03Part<PROTO>>,
            #[serde(default, deserialize_with = "or_default")]
            extensions: Vec<String>,
            metadata: Option<Object>,
            #[serde(default, deserialize_with = "int32")]
            index: Option<i32>,
            append: Option<bool>,
            #[serde(alias = "last_chunk")]
            last_chunk: Option<bool>,
        }
        let read = V03MessageMembers::<PROTO>::deserialize(deserializer)?;
        let by_index = || ArtifactId::from(format!("artifact-{}", read.index.unwrap_or_default()));
        Ok(Self {
            artifact: Artifact {
                artifact_id: read.artifact_id.unwrap_or_else(by_index),
                name: read.name,
                description: read.description,
                parts: read.parts.into_iter().map(|read| read.part).collect(),
                extensions: read.extensions,
                metadata: read.metadata,
            },
            append: read.append.unwrap_or_default(),
            last_chunk: read.last_chunk.unwrap_or_default(),
        })
    }
}
