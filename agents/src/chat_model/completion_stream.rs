//! Reader of a completion, streamed as server-sent events or sent as one JSON body.

use std::collections::VecDeque;
use std::time::Duration;

use attache::HttpResponse;
use attache::wire::sse::Decoder;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::time::timeout;

use super::completion::ErrorEvent;
use super::{Completion, ModelError, ModelSettings};

/// Messages for failures within a response, after "the model".
const FAILED_IN_RESPONSE: &str = "failed in the middle of its answer";
const INVALID_RESPONSE: &str = "sent an invalid answer";

/// Data of the event that ends a stream.
const END_OF_STREAM: &str = "[DONE]";

/// Part of a completion, in the order of arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CompletionEvent {
    Text(String),
    /// The whole reasoning, emitted once before the first text or tool call.
    Reasoning(String),
}

/// Completion that is being read. After an error the part that has arrived is still available.
#[derive(Debug)]
pub(crate) struct CompletionStream {
    response: HttpResponse,
    decoder: Decoder,
    /// Body of a response that does not stream.
    full_body: Option<Vec<u8>>,
    /// Bytes that the endpoint may still send.
    remaining_bytes: usize,
    idle_timeout: Duration,
    completion: Completion,
    /// Events that were read but not returned yet.
    ready: VecDeque<CompletionEvent>,
    reasoning_sent: bool,
    /// Error to return after the events in `ready`.
    error: Option<ModelError>,
    is_ended: bool,
}

impl CompletionStream {
    pub(super) fn new(response: HttpResponse, settings: &ModelSettings) -> Self {
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let is_json = content_type.trim_start().starts_with("application/json");
        let full_body = is_json.then(Vec::new);
        Self {
            response,
            decoder: Decoder::new(settings.max_output),
            full_body,
            remaining_bytes: settings.max_output,
            idle_timeout: settings.timeout,
            completion: Completion::default(),
            ready: VecDeque::new(),
            reasoning_sent: false,
            error: None,
            is_ended: false,
        }
    }

    /// Returns the next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<CompletionEvent, ModelError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.is_ended {
                return self.error.take().map(Err);
            }
            if let Err(error) = self.read_chunk().await {
                self.error = Some(error);
                self.is_ended = true;
            }
        }
    }

    /// Takes the accumulated completion. It is complete after the last event.
    pub(crate) fn take_completion(&mut self) -> Completion {
        std::mem::take(&mut self.completion)
    }

    /// Reads one chunk of the body.
    async fn read_chunk(&mut self) -> Result<(), ModelError> {
        let Ok(chunk) = timeout(self.idle_timeout, self.response.chunk()).await else {
            return Err(ModelError::timed_out(self.idle_timeout));
        };
        let Some(chunk) = chunk else {
            return self.end_of_body();
        };
        let chunk = chunk.map_err(|error| connection_lost(&error.to_string()))?;
        let Some(remaining) = self.remaining_bytes.checked_sub(chunk.len()) else {
            let message = "exceeded the maximum size of an answer (max_output)";
            return Err(ModelError::new(message, "max_output"));
        };
        self.remaining_bytes = remaining;
        match &mut self.full_body {
            Some(full_body) => {
                full_body.extend_from_slice(&chunk);
                Ok(())
            }
            None => self.decode_events(&chunk),
        }
    }

    fn decode_events(&mut self, chunk: &[u8]) -> Result<(), ModelError> {
        self.decoder.push(chunk);
        while let Some(event) = self.decoder.next() {
            let event = event.map_err(|error| ModelError::new(INVALID_RESPONSE, error))?;
            if event.data.trim() == END_OF_STREAM {
                self.finish();
                return Ok(());
            }
            if event.event.as_deref() == Some("error") {
                return Err(ModelError::new(FAILED_IN_RESPONSE, event.data));
            }
            let value = serde_json::from_str(&event.data);
            let value: Value = value.map_err(|error| ModelError::new(INVALID_RESPONSE, error))?;
            self.apply_event(&value)?;
        }
        Ok(())
    }

    fn apply_event(&mut self, event: &Value) -> Result<(), ModelError> {
        let failed = |ErrorEvent(reason)| ModelError::new(FAILED_IN_RESPONSE, reason);
        let delta = self.completion.apply(event).map_err(failed)?;
        if !delta.text.is_empty() || !self.completion.calls.is_empty() {
            self.emit_reasoning();
        }
        if !delta.text.is_empty() {
            self.ready.push_back(CompletionEvent::Text(delta.text));
        }
        Ok(())
    }

    /// Queues the reasoning, once.
    fn emit_reasoning(&mut self) {
        if !std::mem::replace(&mut self.reasoning_sent, true)
            && !self.completion.reasoning.is_empty()
        {
            self.ready.push_back(CompletionEvent::Reasoning(
                self.completion.reasoning.clone(),
            ));
        }
    }

    /// Handles the end of the body. Some endpoints omit the final event, but all of them send a finish reason.
    fn end_of_body(&mut self) -> Result<(), ModelError> {
        if let Some(full_body) = self.full_body.take() {
            let value = serde_json::from_slice(&full_body);
            let value: Value = value.map_err(|error| ModelError::new(INVALID_RESPONSE, error))?;
            self.apply_event(&value)?;
        }
        if self.completion.finish.is_none() || !self.decoder.is_at_boundary() {
            return Err(connection_lost("the stream ended without a finish reason"));
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        self.emit_reasoning();
        self.is_ended = true;
    }
}

fn connection_lost(cause: &str) -> ModelError {
    ModelError::new("broke off in the middle of its answer", cause)
}
