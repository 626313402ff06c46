//! What a stream brings, event by event.

use crate::egress::{ResponseBody, too_large};
use crate::model::{Error, ErrorKind, Response, Result, SendMessageResponse, Seq, StreamResponse};
use crate::wire::Dialect;
use crate::wire::sse::{self, Decoder};

use super::grpc::GrpcMessages;

/// The events of a stream, as they come. Dropping it closes the stream; the task goes on.
pub struct EventStream {
    source: EventSource,
    ended: bool,
}

enum EventSource {
    SseEvents(Box<SseEvents>),
    Grpc(GrpcMessages),
    /// A peer that does not stream answered all the same.
    One(Option<StreamResponse>),
}

impl EventStream {
    /// The next event, and the position to resume behind, where the peer gives one. `None` when the peer has ended
    /// the stream; an error is the last item. Dropping the future loses no event.
    ///
    /// # Errors
    /// What the agent says went wrong, a stream that was cut, or an event that makes no sense or is too large.
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
        item
    }

    /// The stream that a plain answer is.
    pub(super) fn from_response(answer: Response) -> Result<Self> {
        let event = match answer {
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
                return Err(super::operations::mismatched_response(&answer));
            }
        };
        Ok(Self {
            source: EventSource::One(Some(event)),
            ended: false,
        })
    }
}

impl From<SseEvents> for EventStream {
    fn from(events: SseEvents) -> Self {
        Self {
            source: EventSource::SseEvents(Box::new(events)),
            ended: false,
        }
    }
}

impl From<GrpcMessages> for EventStream {
    fn from(messages: GrpcMessages) -> Self {
        Self {
            source: EventSource::Grpc(messages),
            ended: false,
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

/// Reads an event by its name and data.
type ReadEvent = fn(Option<&str>, &str, &Dialect) -> Result<StreamResponse>;

/// Server-sent events, in the envelope of one binding.
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
        // Others number their events as they like; only a number can be one of our positions.
        let position = event.id.as_deref().and_then(|id| id.parse().ok()).map(Seq);
        Ok((
            position,
            (self.read)(event.event.as_deref(), &event.data, &self.dialect)?,
        ))
    }
}

/// A stream that ended in the middle of something.
pub(super) fn stream_cut_error() -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message("the connection to the agent was lost")
        .with_source("the stream ended in the middle of an event")
}
