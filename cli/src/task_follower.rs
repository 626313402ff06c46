//! A task until it ends or needs somebody, whatever happens to the connection on the way.

use attache::model::{Message, StreamResponse, Task, TaskId, TaskState};
use attache::{Error, ErrorKind, PollingPolicy, TaskStream};

use crate::error::{CliError, CliResult};
use crate::session::Session;
use crate::settings::{POLL_INTERVAL, Settings};

/// The longest pause between looks, where the user did not say how often.
const LONGEST_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// How often a task is looked at: as often as the user says, or less and less often.
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

/// The events of one task. It ends as soon as the task is settled, though the agent may tell on.
pub(crate) struct TaskFollower<'a, 's> {
    session: &'a Session<'s>,
    stream: TaskStream,
    /// Whom it is about, where that was known before.
    id: Option<TaskId>,
    /// To say how it is sent again, while it is not known to have arrived.
    sent: Option<Message>,
    /// Interruptions to wait through: they are resolved elsewhere.
    through: Vec<TaskState>,
    /// A state to stop at as well.
    until: Option<TaskState>,
    /// What the task says of its interruption is from before our message.
    is_old: bool,
    ended: bool,
}

impl<'a, 's> TaskFollower<'a, 's> {
    /// What comes of a message.
    pub(crate) fn for_message(
        session: &'a Session<'s>,
        stream: TaskStream,
        message: Message,
    ) -> Self {
        let is_old = message.task_id.is_some();
        Self {
            sent: Some(message),
            is_old,
            ..Self::new(session, stream)
        }
    }

    /// A task that is there.
    pub(crate) fn for_task(session: &'a Session<'s>, id: TaskId) -> Self {
        let stream = session.client.follow(id.clone(), None);
        Self {
            id: Some(id),
            ..Self::new(session, stream)
        }
    }

    fn new(session: &'a Session<'s>, stream: TaskStream) -> Self {
        let (id, sent, through, until) = (None, None, Vec::new(), None);
        Self {
            session,
            stream,
            id,
            sent,
            through,
            until,
            is_old: false,
            ended: false,
        }
    }

    /// By looking now and then.
    pub(crate) fn with_polling(self) -> Self {
        Self {
            stream: self.stream.with_polling(),
            ..self
        }
    }

    /// A task that has ended already is refused, as the agent refuses it.
    pub(crate) fn require_streaming(self) -> Self {
        Self {
            stream: self.stream.require_streaming(),
            ..self
        }
    }

    /// Goes on through these interruptions.
    pub(crate) fn through(self, through: Vec<TaskState>) -> Self {
        Self {
            stream: self.stream.wait_through(through.clone()),
            through,
            ..self
        }
    }

    /// Stops at this state too.
    pub(crate) fn until(self, until: Option<TaskState>) -> Self {
        Self { until, ..self }
    }

    /// What all events so far make of the task.
    pub(crate) fn task(&self) -> Option<&Task> {
        self.stream.task()
    }

    /// The next event; `None` when the task has ended, or waits for somebody.
    pub(crate) async fn next(&mut self) -> CliResult<Option<StreamResponse>> {
        if self.ended {
            return Ok(None);
        }
        let event = match self.stream.next().await {
            Some(Ok(event)) => event,
            Some(Err(error)) => return Err(self.failure(&error)),
            None => return Ok(None),
        };
        let state = match &event {
            StreamResponse::Task(task) => Some(task.status.state),
            StreamResponse::StatusUpdate(update) => Some(update.status.state),
            StreamResponse::ArtifactUpdate(_) => None,
            StreamResponse::Message(_) => {
                self.ended = true;
                None
            }
        };
        let is_old =
            std::mem::take(&mut self.is_old) && state.is_some_and(TaskState::is_interrupted);
        self.ended |= !is_old && state.is_some_and(|state| self.is_final(state));
        Ok(Some(event))
    }

    fn is_final(&self, state: TaskState) -> bool {
        state.is_terminal()
            || self.until == Some(state)
            || (state.is_interrupted() && !self.through.contains(&state))
    }

    fn failure(&self, error: &Error) -> CliError {
        let failure = self.session.error(error);
        let id = self.stream.task().map(|task| &task.id).or(self.id.as_ref());
        match (id, &self.sent) {
            (None, Some(message)) => self.session.send_error(message, error),
            (Some(id), _) if is_transient(error) => {
                let message = format!("lost sight of task {id}: {}", failure.message);
                CliError { message, ..failure }.hint(self.session.resume.wait_command(id.as_str()))
            }
            _ => failure,
        }
    }
}

/// Whether it may be gone by itself.
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
    fn task_poll_002_an_interval_that_was_asked_for_is_kept_and_the_default_stretches() {
        let three = Duration::from_secs(3);
        let asked = polling(&Settings {
            poll_interval: Some(three),
            ..Settings::default()
        });
        assert_eq!((asked.initial_interval, asked.max_interval), (three, three));
        let own = polling(&Settings::default());
        assert!(own.initial_interval < own.max_interval, "{own:?}");
    }
}
