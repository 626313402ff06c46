//! Conversion of a backend's response body into an artifact, streamed if the response streams.

use attache::model::{Artifact, Part};
use attache::wire::sse::Decoder;
use attache::{ArtifactWriter, HttpResponse, Outcome, Turn};
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::HttpSettings;
use crate::line_buffer::LineBuffer;
use crate::utf8_decoder::Utf8Decoder;

/// Message for a response that ends too early.
const BROKE_OFF: &str = "the backend broke off in the middle of its answer";

/// Data of the event that ends a stream.
const END_OF_STREAM: &str = "[DONE]";

/// Reader of a response body that enforces the size limit.
pub(super) struct ResponseReader<'a> {
    turn: &'a Turn,
    settings: &'a HttpSettings,
    /// Bytes that the backend may still send.
    remaining_bytes: usize,
    /// Artifact `answer`, once it has text.
    writer: Option<ArtifactWriter>,
}

/// Format of a body, by its `Content-Type`.
enum BodyFormat {
    Text,
    /// Server-sent events.
    Events,
    /// JSON lines.
    Lines,
    Json,
    /// Any other media type.
    File(String),
}

impl<'a> ResponseReader<'a> {
    pub(super) fn new(turn: &'a Turn, settings: &'a HttpSettings) -> Self {
        Self {
            turn,
            settings,
            remaining_bytes: settings.max_output,
            writer: None,
        }
    }

    /// Reads the whole body. If it breaks off, the part that has arrived stays in the artifact.
    pub(super) async fn read_body(mut self, response: HttpResponse) -> Outcome {
        let read = match body_format(&response) {
            BodyFormat::Text => self.read_text(response).await,
            BodyFormat::Events => self.read_events(response).await,
            BodyFormat::Lines => self.read_lines(response).await,
            BodyFormat::Json => self.read_json(response).await,
            BodyFormat::File(media_type) => self.read_file(response, media_type).await,
        };
        match read {
            Ok(()) => {
                if let Some(writer) = self.writer {
                    writer.finish().await;
                }
                Outcome::Completed
            }
            Err(ReadError::Invalid(reason)) => Outcome::failed(reason),
            Err(ReadError::ConnectionLost(error)) => {
                tracing::warn!(task = %self.turn.task_id(), error = %error, "backend broke off");
                Outcome::failed(BROKE_OFF)
            }
        }
    }

    async fn read_text(&mut self, mut response: HttpResponse) -> Result<(), ReadError> {
        let mut text = Utf8Decoder::default();
        while let Some(bytes) = self.chunk(&mut response).await? {
            let piece = text.push(&bytes);
            self.write(piece).await;
        }
        let rest = text.flush();
        self.write(rest).await;
        Ok(())
    }

    async fn read_events(&mut self, mut response: HttpResponse) -> Result<(), ReadError> {
        let mut decoder = Decoder::new(self.settings.max_output);
        while let Some(bytes) = self.chunk(&mut response).await? {
            decoder.push(&bytes);
            for event in decoder.by_ref() {
                let event =
                    event.map_err(|_| ReadError::invalid("the backend sent an invalid event"))?;
                if event.data.trim() == END_OF_STREAM {
                    return Ok(());
                }
                if event.event.as_deref() == Some("error") {
                    return Err(ReadError::invalid("the backend reported an error"));
                }
                self.write_item(&event.data).await;
            }
        }
        if decoder.is_at_boundary() {
            Ok(())
        } else {
            Err(ReadError::invalid(BROKE_OFF))
        }
    }

    async fn read_lines(&mut self, mut response: HttpResponse) -> Result<(), ReadError> {
        let mut buffer = LineBuffer::default();
        while let Some(bytes) = self.chunk(&mut response).await? {
            let lines = buffer.push(&bytes);
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                self.write_item(&String::from_utf8_lossy(line)).await;
            }
        }
        let rest = buffer.finish();
        self.write_item(&String::from_utf8_lossy(&rest)).await;
        Ok(())
    }

    async fn read_json(&mut self, response: HttpResponse) -> Result<(), ReadError> {
        let body = self.read_all(response).await?;
        let value: Value = serde_json::from_slice(&body)
            .map_err(|_| ReadError::invalid("the answer of the backend is not JSON"))?;
        match (self.text_in(&value), &self.settings.text_at) {
            (Some(text), _) => self.turn.write("answer", text).await,
            (None, Some(pointer)) => {
                return Err(ReadError::Invalid(format!(
                    "the answer of the backend has no text at `{pointer}` (text_at)"
                )));
            }
            (None, None) => {
                let part = Part::data(value);
                self.turn.add_artifact(Artifact::new("answer", part)).await;
            }
        }
        Ok(())
    }

    async fn read_file(
        &mut self,
        response: HttpResponse,
        media_type: String,
    ) -> Result<(), ReadError> {
        let body = self.read_all(response).await?;
        if !body.is_empty() {
            let part = Part::file(body, media_type);
            self.turn.add_artifact(Artifact::new("answer", part)).await;
        }
        Ok(())
    }

    async fn read_all(&mut self, mut response: HttpResponse) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk(&mut response).await? {
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// Appends the text of one event or line.
    ///
    /// With `text_at` it is the JSON string at that pointer; items without one are skipped. Otherwise it is the JSON
    /// string, or the data itself.
    async fn write_item(&mut self, data: &str) {
        let value: Option<Value> = serde_json::from_str(data).ok();
        let text = match (&value, &self.settings.text_at) {
            (Some(value), Some(_)) => self.text_in(value),
            (Some(Value::String(text)), None) => Some(text.clone()),
            (None, Some(_)) => None,
            (_, None) => Some(data.to_owned()).filter(|data| !data.trim().is_empty()),
        };
        self.write(text.unwrap_or_default()).await;
    }

    /// Returns the string at `text_at`, or the value itself if it is a string.
    fn text_in(&self, value: &Value) -> Option<String> {
        let value = match &self.settings.text_at {
            Some(pointer) => value.pointer(pointer)?,
            None => value,
        };
        value.as_str().map(str::to_owned)
    }

    /// Returns the next chunk of the body.
    ///
    /// # Errors
    /// The connection is lost, or the body exceeds `max_output`.
    async fn chunk(
        &mut self,
        response: &mut HttpResponse,
    ) -> Result<Option<bytes::Bytes>, ReadError> {
        let Some(chunk) = response.chunk().await else {
            return Ok(None);
        };
        let chunk = chunk.map_err(ReadError::ConnectionLost)?;
        let Some(remaining) = self.remaining_bytes.checked_sub(chunk.len()) else {
            return Err(ReadError::Invalid(format!(
                "the answer of the backend is larger than {} bytes (max_output)",
                self.settings.max_output
            )));
        };
        self.remaining_bytes = remaining;
        Ok(Some(chunk))
    }

    async fn write(&mut self, text: String) {
        if !text.is_empty() {
            self.writer
                .get_or_insert_with(|| self.turn.writer("answer"))
                .write(text)
                .await;
        }
    }
}

/// Failure to read a body.
enum ReadError {
    /// The body is invalid; the message is for the caller.
    Invalid(String),
    /// The connection was lost; the cause is for the log.
    ConnectionLost(attache::Error),
}

impl ReadError {
    fn invalid(reason: &str) -> Self {
        Self::Invalid(reason.to_owned())
    }
}

fn body_format(response: &HttpResponse) -> BodyFormat {
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("text/plain");
    let essence = content_type
        .split(';')
        .next()
        .unwrap_or(content_type)
        .trim()
        .to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => BodyFormat::Events,
        "application/x-ndjson" | "application/jsonl" | "application/json-lines" => {
            BodyFormat::Lines
        }
        json if json == "application/json" || json.ends_with("+json") => BodyFormat::Json,
        text if text.starts_with("text/") => BodyFormat::Text,
        _ => BodyFormat::File(essence),
    }
}
