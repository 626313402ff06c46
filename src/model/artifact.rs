//! What an agent produces.

use serde::{Deserialize, Serialize};

use super::message::joined_text;
use super::{ArtifactId, Object, Part, non_empty, or_default};

/// A result of a task: a document, a file, an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Unique within the task.
    #[serde(default, alias = "artifact_id", deserialize_with = "or_default")]
    pub artifact_id: ArtifactId,
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// The content; at least one part.
    #[serde(default, deserialize_with = "or_default")]
    pub parts: Vec<Part>,
    /// The extensions that contributed to it, by URI.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub extensions: Vec<String>,
    /// Whatever else the agent wants to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

impl Artifact {
    /// An artifact of one part, with a name and a fresh id.
    pub fn new(name: impl Into<String>, part: impl Into<Part>) -> Self {
        Self {
            artifact_id: ArtifactId::random(),
            name: Some(name.into()),
            parts: vec![part.into()],
            ..Self::default()
        }
    }

    /// An artifact of one text, with a name and a fresh id.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(name, Part::text(text))
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: impl Into<Part>) -> Self {
        self.parts.push(part.into());
        self
    }

    /// Gives it the id that other programs will know it by.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<ArtifactId>) -> Self {
        self.artifact_id = id.into();
        self
    }

    /// Its text parts, a line each.
    #[must_use]
    pub fn as_text(&self) -> String {
        joined_text(&self.parts)
    }

    /// Adds a later chunk: parts behind ours, text to text; metadata by key; names where there were none.
    pub fn extend(&mut self, chunk: &Self) {
        for part in &chunk.parts {
            if !self
                .parts
                .last_mut()
                .is_some_and(|last| last.append_text(part))
            {
                self.parts.push(part.clone());
            }
        }
        match (&mut self.metadata, &chunk.metadata) {
            (Some(metadata), Some(more)) => metadata.merge(more),
            (None, Some(more)) => self.metadata = Some(more.clone()),
            (_, None) => {}
        }
        self.name = self.name.take().or_else(|| chunk.name.clone());
        self.description = self
            .description
            .take()
            .or_else(|| chunk.description.clone());
        if self.extensions.is_empty() {
            self.extensions.clone_from(&chunk.extensions);
        }
    }
}
