//! What a backend answers, as a result that streams where the answer does.

use attache::model::{Artifact, Part};
use attache::wire::sse::Decoder;
use attache::{Failure, HttpResponse, Outcome, Turn, Writer};
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::HttpSettings;
use crate::text::Utf8;

/// Says that a stream of events is over.
const DONE: &str = "[DONE]";

/// What has been read so far.
pub(super) struct Answer<'a> {
    turn: &'a Turn,
    settings: &'a HttpSettings,
    left: usize,
    writer: Option<Writer>,
}

/// What a body is made of.
enum Form {
    Text,
    Events,
    Lines,
    Json,
    File(String),
}

impl<'a> Answer<'a> {
    pub(super) fn new(turn: &'a Turn, settings: &'a HttpSettings) -> Self {
        Self {
            turn,
            settings,
            left: settings.max_output,
            writer: None,
        }
    }

    /// Takes the whole body. What came before it broke off stays.
    pub(super) async fn take(mut self, answer: HttpResponse) -> Result<Outcome, Failure> {
        let taken = match form(&answer) {
            Form::Text => self.text(answer).await,
            Form::Events => self.events(answer).await,
            Form::Lines => self.lines(answer).await,
            Form::Json => self.json(answer).await,
            Form::File(kind) => self.file(answer, kind).await,
        };
        match taken {
            Ok(()) => {
                if let Some(writer) = self.writer {
                    writer.finish().await;
                }
                Ok(Outcome::Completed)
            }
            Err(Broken::Told(why)) => Ok(Outcome::failed(why)),
            Err(Broken::Lost(error)) => {
                tracing::warn!(task = %self.turn.task_id(), error = %error, "backend broke off");
                Ok(Outcome::failed(
                    "the backend broke off in the middle of its answer",
                ))
            }
        }
    }

    async fn text(&mut self, mut answer: HttpResponse) -> Result<(), Broken> {
        let mut text = Utf8::default();
        while let Some(bytes) = self.chunk(&mut answer).await? {
            let piece = text.push(&bytes);
            self.write(piece).await;
        }
        let rest = text.rest();
        self.write(rest).await;
        Ok(())
    }

    async fn events(&mut self, mut answer: HttpResponse) -> Result<(), Broken> {
        let mut decoder = Decoder::new(self.settings.max_output);
        while let Some(bytes) = self.chunk(&mut answer).await? {
            decoder.push(&bytes);
            for event in decoder.by_ref() {
                let event =
                    event.map_err(|_| Broken::told("an event of the backend makes no sense"))?;
                if event.data.trim() == DONE {
                    return Ok(());
                }
                if event.event.as_deref() == Some("error") {
                    return Err(Broken::told("the backend says that it failed"));
                }
                self.piece(&event.data).await;
            }
        }
        match decoder.is_clean() {
            true => Ok(()),
            false => Err(Broken::told(
                "the backend broke off in the middle of its answer",
            )),
        }
    }

    async fn lines(&mut self, mut answer: HttpResponse) -> Result<(), Broken> {
        let mut half = Vec::new();
        while let Some(bytes) = self.chunk(&mut answer).await? {
            half.extend_from_slice(&bytes);
            while let Some(end) = half.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = half.drain(..=end).collect();
                self.piece(&String::from_utf8_lossy(&line)).await;
            }
        }
        self.piece(&String::from_utf8_lossy(&half)).await;
        Ok(())
    }

    async fn json(&mut self, mut answer: HttpResponse) -> Result<(), Broken> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk(&mut answer).await? {
            all.extend_from_slice(&bytes);
        }
        let value: Value = serde_json::from_slice(&all)
            .map_err(|_| Broken::told("the answer of the backend is no JSON"))?;
        match (self.found(&value), &self.settings.text_at) {
            (Some(text), _) => self.turn.write("answer", text).await,
            (None, Some(place)) => {
                return Err(Broken::Told(format!(
                    "the answer of the backend has no text at `{place}`"
                )));
            }
            (None, None) => {
                self.turn
                    .artifact(Artifact::new("answer", Part::data(value)))
                    .await
            }
        }
        Ok(())
    }

    async fn file(&mut self, mut answer: HttpResponse, kind: String) -> Result<(), Broken> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk(&mut answer).await? {
            all.extend_from_slice(&bytes);
        }
        if !all.is_empty() {
            self.turn
                .artifact(Artifact::new("answer", Part::file(all, kind)))
                .await;
        }
        Ok(())
    }

    /// The text of one event or line: at its place in JSON, a text of JSON, or as it is. An event without text at its
    /// place says nothing.
    async fn piece(&mut self, data: &str) {
        let value: Option<Value> = serde_json::from_str(data).ok();
        let text = match (&value, &self.settings.text_at) {
            (Some(value), Some(_)) => self.found(value),
            (Some(Value::String(text)), None) => Some(text.clone()),
            (None, Some(_)) => None,
            (_, None) => Some(data.to_owned()).filter(|data| !data.trim().is_empty()),
        };
        self.write(text.unwrap_or_default()).await;
    }

    fn found(&self, value: &Value) -> Option<String> {
        let value = match &self.settings.text_at {
            Some(place) => value.pointer(place)?,
            None => value,
        };
        value.as_str().map(str::to_owned)
    }

    /// The next piece of the body, within the limit.
    async fn chunk(&mut self, answer: &mut HttpResponse) -> Result<Option<bytes::Bytes>, Broken> {
        let Some(chunk) = answer.chunk().await else {
            return Ok(None);
        };
        let chunk = chunk.map_err(Broken::Lost)?;
        self.left = self.left.checked_sub(chunk.len()).ok_or_else(|| {
            Broken::Told(format!(
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
enum Broken {
    Told(String),
    Lost(attache::Error),
}

impl Broken {
    fn told(why: &str) -> Self {
        Self::Told(why.to_owned())
    }
}

fn form(answer: &HttpResponse) -> Form {
    let kind = answer
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
        "text/event-stream" => Form::Events,
        "application/x-ndjson" | "application/jsonl" | "application/json-lines" => Form::Lines,
        json if json == "application/json" || json.ends_with("+json") => Form::Json,
        text if text.starts_with("text/") => Form::Text,
        _ => Form::File(essence),
    }
}
