//! An answer that is still being read.

use std::collections::VecDeque;
use std::time::Duration;

use attache::HttpResponse;
use attache::wire::sse::Decoder;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use tokio::time::timeout;

use super::chunk::Complaint;
use super::{Failed, ModelSettings, Said};

/// Says that a stream is over.
const DONE: &str = "[DONE]";

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// What the model thinks; it comes whole, when it has been thought.
    Reasoning(String),
}

/// An answer that is still being read; what has come stays, whatever happens to the rest.
#[derive(Debug)]
pub(crate) struct Answer {
    answer: HttpResponse,
    decoder: Decoder,
    /// The body as a whole, if it does not stream.
    whole: Option<Vec<u8>>,
    left: usize,
    limit: Duration,
    said: Said,
    ready: VecDeque<Piece>,
    thought: bool,
    /// Why there is no more, behind what is ready.
    failed: Option<Failed>,
    ended: bool,
}

impl Answer {
    pub(super) fn new(answer: HttpResponse, settings: &ModelSettings) -> Self {
        let kind = answer
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let whole = kind
            .trim_start()
            .starts_with("application/json")
            .then(Vec::new);
        Self {
            answer,
            decoder: Decoder::new(settings.max_output),
            whole,
            left: settings.max_output,
            limit: settings.timeout,
            said: Said::default(),
            ready: VecDeque::new(),
            thought: false,
            failed: None,
            ended: false,
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Piece, Failed>> {
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
    pub(crate) fn said(&mut self) -> Said {
        std::mem::take(&mut self.said)
    }

    async fn read(&mut self) -> Result<(), Failed> {
        let Ok(chunk) = timeout(self.limit, self.answer.chunk()).await else {
            return Err(Failed::silent(self.limit));
        };
        let Some(chunk) = chunk else {
            return self.end();
        };
        let chunk = chunk.map_err(|error| broke_off(&error.to_string()))?;
        let large = || Failed::new("said more than it may", "max_output");
        self.left = self.left.checked_sub(chunk.len()).ok_or_else(large)?;
        if let Some(whole) = &mut self.whole {
            whole.extend_from_slice(&chunk);
            return Ok(());
        }
        self.decoder.push(&chunk);
        while let Some(event) = self.decoder.next() {
            let event = event.map_err(|error| Failed::new("said what cannot be read", error))?;
            if event.data.trim() == DONE {
                self.finish();
                return Ok(());
            }
            if event.event.as_deref() == Some("error") {
                return Err(Failed::new(
                    "failed in the middle of its answer",
                    event.data,
                ));
            }
            let value = serde_json::from_str(&event.data);
            let value: Value =
                value.map_err(|error| Failed::new("said what cannot be read", error))?;
            self.take(&value)?;
        }
        Ok(())
    }

    fn take(&mut self, event: &Value) -> Result<(), Failed> {
        let failed = |Complaint(why)| Failed::new("failed in the middle of its answer", why);
        let news = self.said.take(event).map_err(failed)?;
        if !news.text.is_empty() || !self.said.calls.is_empty() {
            self.think();
        }
        if !news.text.is_empty() {
            self.ready.push_back(Piece::Text(news.text));
        }
        Ok(())
    }

    /// What was thought is told once, before the first word that is meant to be heard.
    fn think(&mut self) {
        if !std::mem::replace(&mut self.thought, true) && !self.said.reasoning.is_empty() {
            self.ready
                .push_back(Piece::Reasoning(self.said.reasoning.clone()));
        }
    }

    /// The body has ended. Not everybody says that they are done; but whoever has not finished was cut off.
    fn end(&mut self) -> Result<(), Failed> {
        if let Some(whole) = self.whole.take() {
            let value = serde_json::from_slice(&whole);
            let value: Value =
                value.map_err(|error| Failed::new("said what cannot be read", error))?;
            self.take(&value)?;
        }
        if self.said.finish.is_none() || !self.decoder.is_clean() {
            return Err(broke_off("the stream has no end"));
        }
        self.finish();
        Ok(())
    }

    fn finish(&mut self) {
        self.think();
        self.ended = true;
    }
}

fn broke_off(cause: &str) -> Failed {
    Failed::new("broke off in the middle of its answer", cause)
}
