//! States of a [`TaskStream`](super::TaskStream), and the message it has to deliver first.

use tokio::time::Instant;

use super::super::EventStream;
use crate::model::{Error, ErrorKind, SendMessageRequest, StreamResponse};

/// Source of the next event.
pub(super) enum State {
    /// `SendMessage` is the next call: the peer does not stream, or streaming is not wanted.
    Sending,
    /// A stream is opened at this time: with `SendStreamingMessage` until the task id is known, then with
    /// `SubscribeToTask`.
    Connecting(Instant),
    /// A stream is open.
    Streaming {
        stream: EventStream,
        progress: StreamProgress,
    },
    /// The task is at rest. The stream is read until it ends or is silent for [`DRAIN_TIMEOUT`](super::DRAIN_TIMEOUT).
    Draining(EventStream),
    /// `GetTask` is called at this time: the peer does not stream this task.
    Polling(Instant),
    /// No further events.
    Ended,
}

impl State {
    /// Returns what the open stream has delivered; `Nothing` if none is open.
    pub(super) fn progress(&self) -> StreamProgress {
        match self {
            Self::Streaming { progress, .. } => *progress,
            Self::Sending
            | Self::Connecting(_)
            | Self::Draining(_)
            | Self::Polling(_)
            | Self::Ended => StreamProgress::Nothing,
        }
    }

    /// Raises the progress of the open stream.
    pub(super) fn record(&mut self, delivered: StreamProgress) {
        if let Self::Streaming { progress, .. } = self {
            *progress = (*progress).max(delivered);
        }
    }

    /// Switches from streaming to draining, and from any other state to the end.
    pub(super) fn drain(&mut self) {
        *self = match std::mem::replace(self, Self::Ended) {
            Self::Streaming { stream, .. } => Self::Draining(stream),
            _ => Self::Ended,
        };
    }

    /// Switches from draining back to streaming.
    pub(super) fn resume(&mut self) {
        *self = match std::mem::replace(self, Self::Ended) {
            Self::Draining(stream) => Self::Streaming {
                stream,
                progress: StreamProgress::NewEvents,
            },
            other => other,
        };
    }
}

/// Events that one stream has delivered so far, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamProgress {
    /// No event.
    Nothing,
    /// Only events that were already known.
    Duplicates,
    /// At least one new event.
    NewEvents,
}

/// Result of one step of the state machine.
pub(super) enum Step {
    /// An event for the caller.
    Event(StreamResponse),
    /// Nothing to report yet: the loop goes on in the current state.
    Continue,
}

impl From<Option<StreamResponse>> for Step {
    fn from(event: Option<StreamResponse>) -> Self {
        event.map_or(Self::Continue, Self::Event)
    }
}

/// Message that is not known to have reached the agent.
pub(super) struct PendingMessage {
    pub(super) request: SendMessageRequest,
    /// Whether a send without a stream returns as soon as the task exists, so that the first event comes early.
    pub(super) wants_early_task: bool,
    /// Whether the peer has refused one of the two operations, `SendMessage` and `SendStreamingMessage`.
    pub(super) was_refused: bool,
}

impl PendingMessage {
    pub(super) fn new(request: SendMessageRequest) -> Self {
        Self {
            request,
            wants_early_task: false,
            was_refused: false,
        }
    }

    /// Whether the message continues an existing task.
    pub(super) fn continues_task(&self) -> bool {
        self.request.message.task_id.is_some()
    }

    /// Whether the peer refused the continued task (it has ended) rather than the operation.
    pub(super) fn is_task_refused(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::UnsupportedOperation && self.continues_task()
    }

    /// Makes a send without a stream return as soon as the task exists.
    pub(super) fn return_immediately(&mut self) {
        self.request
            .configuration
            .get_or_insert_default()
            .return_immediately = true;
    }
}
