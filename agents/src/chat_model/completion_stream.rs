//! An answer that is still being read.

use std::collections::VecDeque;
use std::time::Duration;

use attache::HttpResponse;
use attache::wire::sse::Decoder;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::time::timeout;

use super::completion::ErrorEvent;
use super::{Completion, ModelError, ModelSettings};

/// Says that a stream is over.
const END_OF_STREAM: &str = "[DONE]";

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CompletionEvent {
    Text(String),
    /// What the model thinks; it comes whole, when it has been thought.
    Reasoning(String),
}

/// An answer that is still being read; what has come stays, whatever happens to the rest.
#[derive(Debug)]
pub(crate) struct CompletionStream {
    answer: HttpResponse,
    decoder: Decoder,
    /// The body as a whole, if it does not stream.
    full_body: Option<Vec<u8>>,
    remaining_bytes: usize,
    idle_timeout: Duration,
    completion: Completion,
    ready: VecDeque<CompletionEvent>,
    reasoning_sent: bool,
    /// Why there is no more, behind what is ready.
    failed: Option<ModelError>,
    ended: bool,
}

impl CompletionStream {
    pub(super) fn new(answer: HttpResponse, settings: &ModelSettings) -> Self {
        let kind = answer
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let full_body = kind
            .trim_start()
            .starts_with("application/json")
            .then(Vec::new);
        Self {
            answer,
            decoder: Decoder::new(settings.max_output),
            full_body,
            remaining_bytes: settings.max_output,
            idle_timeout: settings.timeout,
            completion: Completion::default(),
            ready: VecDeque::new(),
            reasoning_sent: false,
            failed: None,
            ended: false,
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<CompletionEvent, ModelError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.ended {
                return self.failed.take().map(Err);
            }
            if let Err(failed) = self.read().await {
                self.failed = Some(failed);
                self.ended = true;
            }
        }
    }

    /// What was said: all of it after the last piece.
    pub(crate) fn take_completion(&mut self) -> Completion {
        std::mem::take(&mut self.completion)
    }

    async fn read(&mut self) -> Result<(), ModelError> {
        let Ok(chunk) = timeout(self.idle_timeout, self.answer.chunk()).await else {
            return Err(ModelError::timed_out(self.idle_timeout));
        };
        let Some(chunk) = chunk else {
            return self.end_of_body();
        };
        let chunk = chunk.map_err(|error| connection_lost(&error.to_string()))?;
        let large = || ModelError::new("said more than it may", "max_output");
        self.remaining_bytes = self
            .remaining_bytes
            .checked_sub(chunk.len())
            .ok_or_else(large)?;
        if let Some(full_body) = &mut self.full_body {
            full_body.extend_from_slice(&chunk);
            return Ok(());
        }
        self.decoder.push(&chunk);
        while let Some(event) = self.decoder.next() {
            let event =
                event.map_err(|error| ModelError::new("said what cannot be read", error))?;
            if event.data.trim() == END_OF_STREAM {
                self.finish();
                return Ok(());
            }
            if event.event.as_deref() == Some("error") {
                return Err(ModelError::new(
                    "failed in the middle of its answer",
                    event.data,
                ));
            }
            let value = serde_json::from_str(&event.data);
            let value: Value =
                value.map_err(|error| ModelError::new("said what cannot be read", error))?;
            self.apply_event(&value)?;
        }
        Ok(())
    }

    fn apply_event(&mut self, event: &Value) -> Result<(), ModelError> {
        let failed = |ErrorEvent(why)| ModelError::new("failed in the middle of its answer", why);
        let delta = self.completion.apply(event).map_err(failed)?;
        if !delta.text.is_empty() || !self.completion.calls.is_empty() {
            self.emit_reasoning();
        }
        if !delta.text.is_empty() {
            self.ready.push_back(CompletionEvent::Text(delta.text));
        }
        Ok(())
    }

    /// What was thought is told once, before the first word that is meant to be heard.
    fn emit_reasoning(&mut self) {
        if !std::mem::replace(&mut self.reasoning_sent, true)
            && !self.completion.reasoning.is_empty()
        {
            self.ready.push_back(CompletionEvent::Reasoning(
                self.completion.reasoning.clone(),
            ));
        }
    }

    /// The body has ended. Not everybody says that they are done; but whoever has not finished was cut off.
    fn end_of_body(&mut self) -> Result<(), ModelError> {
        if let Some(full_body) = self.full_body.take() {
            let value = serde_json::from_slice(&full_body);
            let value: Value =
                value.map_err(|error| ModelError::new("said what cannot be read", error))?;
            self.apply_event(&value)?;
        }
        if self.completion.finish.is_none() || !self.decoder.is_at_boundary() {
            return Err(connection_lost("the stream has no end"));
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        self.emit_reasoning();
        self.ended = true;
    }
}

fn connection_lost(cause: &str) -> ModelError {
    ModelError::new("broke off in the middle of its answer", cause)
}
