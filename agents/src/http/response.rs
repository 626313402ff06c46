//! What a backend answers, as a result that streams where the answer does.

use attache::model::{Artifact, Part};
use attache::wire::sse::Decoder;
use attache::{ArtifactWriter, Failure, HttpResponse, Outcome, Turn};
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::HttpSettings;
use crate::utf8_decoder::Utf8Decoder;

/// Says that a stream of events is over.
const END_OF_STREAM: &str = "[DONE]";

/// What has been read so far.
pub(super) struct ResponseReader<'a> {
    turn: &'a Turn,
    settings: &'a HttpSettings,
    remaining_bytes: usize,
    writer: Option<ArtifactWriter>,
}

/// What a body is made of.
enum BodyFormat {
    Text,
    Events,
    Lines,
    Json,
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

    /// Takes the whole body. What came before it broke off stays.
    pub(super) async fn read_body(mut self, response: HttpResponse) -> Result<Outcome, Failure> {
        let taken = match body_format(&response) {
            BodyFormat::Text => self.text(response).await,
            BodyFormat::Events => self.events(response).await,
            BodyFormat::Lines => self.lines(response).await,
            BodyFormat::Json => self.json(response).await,
            BodyFormat::File(kind) => self.file(response, kind).await,
        };
        match taken {
            Ok(()) => {
                if let Some(writer) = self.writer {
                    writer.finish().await;
                }
                Ok(Outcome::Completed)
            }
            Err(ReadError::Reported(why)) => Ok(Outcome::failed(why)),
            Err(ReadError::ConnectionLost(error)) => {
                tracing::warn!(task = %self.turn.task_id(), error = %error, "backend broke off");
                Ok(Outcome::failed(
                    "the backend broke off in the middle of its answer",
                ))
            }
        }
    }

    async fn text(&mut self, mut response: HttpResponse) -> Result<(), ReadError> {
        let mut text = Utf8Decoder::default();
        while let Some(bytes) = self.chunk(&mut response).await? {
            let piece = text.push(&bytes);
            self.write(piece).await;
        }
        let rest = text.flush();
        self.write(rest).await;
        Ok(())
    }

    async fn events(&mut self, mut response: HttpResponse) -> Result<(), ReadError> {
        let mut decoder = Decoder::new(self.settings.max_output);
        while let Some(bytes) = self.chunk(&mut response).await? {
            decoder.push(&bytes);
            for event in decoder.by_ref() {
                let event = event
                    .map_err(|_| ReadError::reported("an event of the backend makes no sense"))?;
                if event.data.trim() == END_OF_STREAM {
                    return Ok(());
                }
                if event.event.as_deref() == Some("error") {
                    return Err(ReadError::reported("the backend says that it failed"));
                }
                self.write_item(&event.data).await;
            }
        }
        match decoder.is_at_boundary() {
            true => Ok(()),
            false => Err(ReadError::reported(
                "the backend broke off in the middle of its answer",
            )),
        }
    }

    async fn lines(&mut self, mut response: HttpResponse) -> Result<(), ReadError> {
        let mut half = Vec::new();
        while let Some(bytes) = self.chunk(&mut response).await? {
            half.extend_from_slice(&bytes);
            while let Some(end) = half.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = half.drain(..=end).collect();
                self.write_item(&String::from_utf8_lossy(&line)).await;
            }
        }
        self.write_item(&String::from_utf8_lossy(&half)).await;
        Ok(())
    }

    async fn json(&mut self, mut response: HttpResponse) -> Result<(), ReadError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk(&mut response).await? {
            all.extend_from_slice(&bytes);
        }
        let value: Value = serde_json::from_slice(&all)
            .map_err(|_| ReadError::reported("the answer of the backend is no JSON"))?;
        match (self.text_in(&value), &self.settings.text_at) {
            (Some(text), _) => self.turn.write("answer", text).await,
            (None, Some(place)) => {
                return Err(ReadError::Reported(format!(
                    "the answer of the backend has no text at `{place}`"
                )));
            }
            (None, None) => {
                self.turn
                    .add_artifact(Artifact::new("answer", Part::data(value)))
                    .await
            }
        }
        Ok(())
    }

    async fn file(&mut self, mut response: HttpResponse, kind: String) -> Result<(), ReadError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk(&mut response).await? {
            all.extend_from_slice(&bytes);
        }
        if !all.is_empty() {
            self.turn
                .add_artifact(Artifact::new("answer", Part::file(all, kind)))
                .await;
        }
        Ok(())
    }

    /// The text of one event or line: at its place in JSON, a text of JSON, or as it is. An event without text at its
    /// place says nothing.
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

    fn text_in(&self, value: &Value) -> Option<String> {
        let value = match &self.settings.text_at {
            Some(place) => value.pointer(place)?,
            None => value,
        };
        value.as_str().map(str::to_owned)
    }

    /// The next piece of the body, within the limit.
    async fn chunk(
        &mut self,
        response: &mut HttpResponse,
    ) -> Result<Option<bytes::Bytes>, ReadError> {
        let Some(chunk) = response.chunk().await else {
            return Ok(None);
        };
        let chunk = chunk.map_err(ReadError::ConnectionLost)?;
        self.remaining_bytes = self
            .remaining_bytes
            .checked_sub(chunk.len())
            .ok_or_else(|| {
                ReadError::Reported(format!(
                    "the answer of the backend is larger than {} bytes",
                    self.settings.max_output
                ))
            })?;
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

/// Why an answer has no end: told to the caller, or for the log.
enum ReadError {
    Reported(String),
    ConnectionLost(attache::Error),
}

impl ReadError {
    fn reported(why: &str) -> Self {
        Self::Reported(why.to_owned())
    }
}

fn body_format(response: &HttpResponse) -> BodyFormat {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or("text/plain");
    let essence = kind
        .split(';')
        .next()
        .unwrap_or(kind)
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
