//! Artifacts: the output of a task.

use serde::{Deserialize, Serialize};

use super::message::joined_text;
use super::{ArtifactId, Object, Part, non_empty, or_default};

/// Output of a task, such as a document, a file or an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Identifier, unique within the task.
    #[serde(default, alias = "artifact_id", deserialize_with = "or_default")]
    pub artifact_id: ArtifactId,
    /// Display name.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,
    /// Display description.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Content. At least one part.
    #[serde(default, deserialize_with = "or_default")]
    pub parts: Vec<Part>,
    /// URIs of the extensions that contributed to the artifact.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub extensions: Vec<String>,
    /// Additional data from the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

impl Artifact {
    /// Creates an artifact with one part, a name and a random id.
    pub fn new(name: impl Into<String>, part: impl Into<Part>) -> Self {
        Self {
            artifact_id: ArtifactId::random(),
            name: Some(name.into()),
            parts: vec![part.into()],
            ..Self::default()
        }
    }

    /// Creates an artifact with one text part, a name and a random id.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(name, Part::text(text))
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: impl Into<Part>) -> Self {
        self.parts.push(part.into());
        self
    }

    /// Replaces the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<ArtifactId>) -> Self {
        self.artifact_id = id.into();
        self
    }

    /// Returns the text parts, joined with newlines.
    #[must_use]
    pub fn as_text(&self) -> String {
        joined_text(&self.parts)
    }

    /// Appends a chunk.
    ///
    /// Text that follows a plain text part is concatenated with it; other parts are appended.
    /// Metadata is merged by key. Name, description and extensions are taken from the chunk if the
    /// artifact has none.
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
