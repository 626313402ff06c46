//! Follows a task until it ends or is interrupted, across lost connections.

use attache::model::{Message, StreamResponse, Task, TaskId, TaskState};
use attache::{Error, ErrorKind, PollingPolicy, TaskStream};

use crate::error::{CliError, CliResult};
use crate::session::Session;
use crate::settings::{POLL_INTERVAL, Settings};

/// Maximum time between polls without `--poll-interval`.
const LONGEST_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// Polling policy: the fixed `--poll-interval`, else intervals that grow.
pub(crate) fn polling(settings: &Settings) -> PollingPolicy {
    match settings.poll_interval {
        Some(interval) => PollingPolicy {
            initial_interval: interval,
            max_interval: interval,
        },
        None => PollingPolicy {
            initial_interval: POLL_INTERVAL,
            max_interval: LONGEST_INTERVAL,
        },
    }
}

/// Events of one task. Ends when the task is interrupted, even if the agent keeps the stream open. When the task has ended,
/// events that follow at once are returned too: some agents send their answer last.
pub(crate) struct TaskFollower<'a, 's> {
    session: &'a Session<'s>,
    stream: TaskStream,
    /// The task, if it is known before the first event.
    id: Option<TaskId>,
    /// The message that started the stream, for the hint how to resend it.
    sent: Option<Message>,
    /// Interrupted states to wait through.
    through: Vec<TaskState>,
    /// Additional state to stop at.
    until: Option<TaskState>,
    /// Whether the first event may show the interruption that our message answers.
    skips_interruption: bool,
    ended: bool,
}

impl<'a, 's> TaskFollower<'a, 's> {
    /// Follows the task of a sent message.
    pub(crate) fn for_message(
        session: &'a Session<'s>,
        stream: TaskStream,
        message: Message,
    ) -> Self {
        let skips_interruption = message.task_id.is_some();
        Self {
            sent: Some(message),
            skips_interruption,
            ..Self::new(session, stream)
        }
    }

    /// Follows an existing task.
    pub(crate) fn for_task(session: &'a Session<'s>, id: TaskId) -> Self {
        let stream = session.client.follow(id.clone(), None);
        Self {
            id: Some(id),
            ..Self::new(session, stream)
        }
    }

    fn new(session: &'a Session<'s>, stream: TaskStream) -> Self {
        Self {
            session,
            stream,
            id: None,
            sent: None,
            through: Vec::new(),
            until: None,
            skips_interruption: false,
            ended: false,
        }
    }

    /// Polls instead of streaming.
    pub(crate) fn with_polling(self) -> Self {
        Self {
            stream: self.stream.with_polling(),
            ..self
        }
    }

    /// Returns the agent's error if the task has already ended.
    pub(crate) fn require_streaming(self) -> Self {
        Self {
            stream: self.stream.require_streaming(),
            ..self
        }
    }

    /// Keeps following in these interrupted states.
    pub(crate) fn through(self, through: Vec<TaskState>) -> Self {
        Self {
            stream: self.stream.wait_through(through.clone()),
            through,
            ..self
        }
    }

    /// Also stops at this state.
    pub(crate) fn until(self, until: Option<TaskState>) -> Self {
        Self { until, ..self }
    }

    /// The fold of all events so far.
    pub(crate) fn task(&self) -> Option<&Task> {
        self.stream.task()
    }

    /// The answer without a task.
    pub(crate) fn message(&self) -> Option<Message> {
        self.stream.message()
    }

    /// The agent's copy of the task, with the content that only the stream contained.
    pub(crate) fn with_received(&self, task: Task) -> Task {
        self.stream.with_received(task)
    }

    /// Returns the next event; `None` after the task has ended or been interrupted.
    pub(crate) async fn next(&mut self) -> CliResult<Option<StreamResponse>> {
        if self.ended {
            return Ok(None);
        }
        let event = match self.stream.next().await {
            Some(Ok(event)) => event,
            Some(Err(error)) => return Err(self.error(&error)),
            None => return Ok(None),
        };
        let state = match &event {
            StreamResponse::Task(task) => Some(task.status.state),
            StreamResponse::StatusUpdate(update) => Some(update.status.state),
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => None,
        };
        let skips_interruption = std::mem::take(&mut self.skips_interruption)
            && state.is_some_and(TaskState::is_interrupted);
        self.ended |= !skips_interruption && state.is_some_and(|state| self.stops_at(state));
        Ok(Some(event))
    }

    fn stops_at(&self, state: TaskState) -> bool {
        let is_interrupted = state.is_interrupted() && !self.through.contains(&state);
        !state.is_terminal() && (self.until == Some(state) || is_interrupted)
    }

    fn error(&self, error: &Error) -> CliError {
        let converted = self.session.error(error);
        let id = self.stream.task().map(|task| &task.id).or(self.id.as_ref());
        match (id, &self.sent) {
            (None, Some(message)) => self.session.send_error(message, error),
            (Some(id), _) if is_transient(error) => {
                let message = format!("lost the connection to task {id}: {}", converted.message);
                CliError {
                    message,
                    ..converted
                }
                .hint(self.session.resume.wait_command(id.as_str()))
            }
            _ => converted,
        }
    }
}

/// Whether the error may disappear by itself.
fn is_transient(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::RateLimited | ErrorKind::DeadlineExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn task_poll_002_an_explicit_interval_is_fixed_and_the_default_grows() {
        let three = Duration::from_secs(3);
        let fixed = polling(&Settings {
            poll_interval: Some(three),
            ..Settings::default()
        });
        assert_eq!((fixed.initial_interval, fixed.max_interval), (three, three));
        let default = polling(&Settings::default());
        assert!(
            default.initial_interval < default.max_interval,
            "{default:?}"
        );
    }
}
