//! Policy of a [`TaskStream`](super::TaskStream): end conditions, delays and the overall deadline.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::super::retry::{RetryBackoff, deadline_exceeded};
use super::super::settings::{ClientSettings, PollingPolicy};
use crate::model::{Error, Result, TaskState};

/// Options that the caller sets on a stream.
pub(super) struct FollowPolicy {
    /// Only a terminal state ends the stream, not an interrupted one.
    pub(super) until_terminal: bool,
    /// Interrupted states that do not end the stream.
    pub(super) wait_through: Vec<TaskState>,
    /// A refusal to stream is an error until the first event has been received. Otherwise the task is polled.
    pub(super) require_streaming: bool,
    /// Dropping the stream before the task is at rest cancels the task.
    pub(super) cancel_on_drop: bool,
}

impl FollowPolicy {
    pub(super) fn new(until_terminal: bool) -> Self {
        Self {
            until_terminal,
            wait_through: Vec::new(),
            require_streaming: false,
            cancel_on_drop: false,
        }
    }

    /// Whether the task waits for this caller in `state`.
    pub(super) fn waits_for_caller(&self, state: TaskState) -> bool {
        state.is_interrupted() && !self.wait_through.contains(&state)
    }
}

/// Delays between reconnects (exponential backoff) and between polls.
pub(super) struct Pacing {
    backoff: RetryBackoff,
    polling: PollingPolicy,
    poll_interval: Duration,
}

impl Pacing {
    pub(super) fn new(settings: &ClientSettings) -> Self {
        Self {
            backoff: RetryBackoff::new(&settings.retries),
            polling: settings.polling.clone(),
            poll_interval: settings.polling.initial_interval,
        }
    }

    /// Starts the backoff over after a success.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff.reset();
    }

    /// Returns to the initial poll interval after new events.
    pub(super) fn reset_poll_interval(&mut self) {
        self.poll_interval = self.polling.initial_interval;
    }

    /// Returns the time of the next poll, and makes the following interval 1.5 times as long.
    pub(super) fn next_poll(&mut self) -> Instant {
        let at = Instant::now() + self.poll_interval;
        self.poll_interval = (self.poll_interval * 3 / 2).min(self.polling.max_interval);
        at
    }

    /// Returns the time of the next retry.
    ///
    /// # Errors
    /// `error` itself if no retry is left.
    pub(super) fn retry_at(&mut self, error: Error) -> Result<Instant> {
        match self.backoff.next(&error) {
            Some(delay) => Ok(Instant::now() + delay),
            None => Err(error),
        }
    }
}

/// End of the time that [`Timeouts::wait`](crate::Timeouts::wait) allows for a whole stream.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self {
            at: Instant::now() + limit,
            limit,
        }
    }

    /// Waits for `work`, at most until the deadline.
    ///
    /// # Errors
    /// Those of `work`, or [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded).
    pub(super) async fn limit<T>(
        deadline: Option<Self>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match deadline {
            Some(Self { at, limit }) => timeout_at(at, work)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded(limit))),
            None => work.await,
        }
    }
}
