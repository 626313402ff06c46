//! Events of one open stream, from server-sent events or gRPC messages.

use crate::egress::{ResponseBody, too_large};
use crate::model::{Error, ErrorKind, Response, Result, SendMessageResponse, Seq, StreamResponse};
use crate::wire::Dialect;
use crate::wire::file_encoding::FileConversion;
use crate::wire::sse::{self, Decoder};

use super::grpc::GrpcMessages;

/// Events of a stream in order of arrival. Dropping it closes the stream; the task continues.
pub struct EventStream {
    source: EventSource,
    ended: bool,
    /// Whether the bytes of files are base64 text.
    has_base64_files: bool,
}

enum EventSource {
    SseEvents(Box<SseEvents>),
    Grpc(GrpcMessages),
    /// Single event: the peer returned a plain response instead of a stream.
    One(Option<StreamResponse>),
}

impl EventStream {
    /// Returns the next event, and the position to resume behind if the peer numbers its events. `None` when the peer has
    /// closed the stream; an error is the last item. Cancel safe: dropping the future loses no event.
    ///
    /// # Errors
    /// An error of the agent, a lost connection, or an event that is invalid or too large.
    pub async fn next(&mut self) -> Option<Result<(Option<Seq>, StreamResponse)>> {
        if self.ended {
            return None;
        }
        let item = match &mut self.source {
            EventSource::SseEvents(events) => events.next().await,
            EventSource::Grpc(messages) => messages
                .next_event()
                .await
                .map(|read| read.map(|event| (None, event))),
            EventSource::One(event) => event.take().map(|event| Ok((None, event))),
        };
        self.ended = !matches!(item, Some(Ok(_)));
        item.map(|item| item.map(|(position, event)| (position, self.decode(event))))
    }

    fn decode(&self, mut event: StreamResponse) -> StreamResponse {
        if self.has_base64_files {
            FileConversion::Decode.apply_to_event(&mut event);
        }
        event
    }

    /// Sets whether the bytes of files are base64 text.
    pub(super) fn with_base64_files(self, has_base64_files: bool) -> Self {
        Self {
            has_base64_files,
            ..self
        }
    }

    /// Returns a stream of the one event that a plain response contains.
    pub(super) fn from_response(response: Response) -> Result<Self> {
        let event = match response {
            Response::SendMessage(SendMessageResponse::Task(task)) | Response::Task(task) => {
                StreamResponse::Task(task)
            }
            Response::SendMessage(SendMessageResponse::Message(message)) => {
                StreamResponse::Message(message)
            }
            Response::ListTasks(_)
            | Response::PushConfig(_)
            | Response::ListPushConfigs(_)
            | Response::Empty
            | Response::AgentCard(_) => {
                return Err(super::operations::mismatched_response(&response));
            }
        };
        Ok(Self {
            source: EventSource::One(Some(event)),
            ended: false,
            has_base64_files: false,
        })
    }
}

impl From<SseEvents> for EventStream {
    fn from(events: SseEvents) -> Self {
        Self {
            source: EventSource::SseEvents(Box::new(events)),
            ended: false,
            has_base64_files: false,
        }
    }
}

impl From<GrpcMessages> for EventStream {
    fn from(messages: GrpcMessages) -> Self {
        Self {
            source: EventSource::Grpc(messages),
            ended: false,
            has_base64_files: false,
        }
    }
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// Decoder of one event from its name and data.
type ReadEvent = fn(Option<&str>, &str, &Dialect) -> Result<StreamResponse>;

/// Server-sent events in the envelope of one binding.
pub(super) struct SseEvents {
    body: ResponseBody,
    decoder: Decoder,
    limit: usize,
    dialect: Dialect,
    read: ReadEvent,
}

impl SseEvents {
    pub(super) fn new(body: ResponseBody, limit: usize, dialect: Dialect, read: ReadEvent) -> Self {
        Self {
            body,
            decoder: Decoder::new(limit),
            limit,
            dialect,
            read,
        }
    }

    async fn next(&mut self) -> Option<Result<(Option<Seq>, StreamResponse)>> {
        loop {
            if let Some(event) = self.decoder.next() {
                return Some(self.event(event));
            }
            match self.body.next().await {
                Some(Ok(frame)) => frame
                    .data_ref()
                    .into_iter()
                    .for_each(|data| self.decoder.push(data)),
                Some(Err(lost)) => return Some(Err(lost)),
                None if self.decoder.is_at_boundary() => return None,
                None => return Some(Err(stream_cut_error())),
            }
        }
    }

    fn event(
        &self,
        event: Result<sse::SseEvent, sse::Error>,
    ) -> Result<(Option<Seq>, StreamResponse)> {
        let event = event.map_err(|sse::Error::TooLarge { .. }| too_large(self.limit))?;
        // Peers may use any event id; only a number is a position.
        let position = event.id.as_deref().and_then(|id| id.parse().ok()).map(Seq);
        Ok((
            position,
            (self.read)(event.event.as_deref(), &event.data, &self.dialect)?,
        ))
    }
}

/// Returns the error for a stream that ended within an event or before the task did.
pub(super) fn stream_cut_error() -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message("the connection to the agent was lost")
        .with_source("the stream ended in the middle of an event")
}
