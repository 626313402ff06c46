//! What an agent says, made ready for the log.

use std::sync::Arc;

use super::{Ending, Fault};
use crate::agent::{Failure, Outcome, Question};
use crate::engine::reason;
use crate::engine::runner::{Runner, status};
use crate::model::{
    ArtifactId, Broken, Event, INPUT_REQUEST, Message, Object, Task, TaskState, TaskStatus, Trace,
};

/// Takes down what the agent of one turn says.
pub(super) struct Scribe {
    /// What is added to the metadata of every status.
    stamp: Option<Object>,
    /// Metadata that waits for the next status.
    held: Option<Object>,
}

impl Scribe {
    /// One that says with every status which trace it belongs to, if that is wanted.
    pub(super) fn new(trace: Option<&Trace>) -> Self {
        let stamp = trace.map(|trace| {
            let mut stamp = Object::new();
            stamp.insert("traceId", trace.trace_id());
            stamp.insert("spanId", trace.span_id());
            stamp
        });
        Self { stamp, held: None }
    }

    /// The agent is at work, and does not say so itself.
    pub(super) fn working(&self) -> Event {
        Event::Status {
            status: TaskStatus::new(TaskState::Working),
            metadata: self.stamp.clone(),
        }
    }

    /// Leaves what goes into the log, up to the first thing that cannot, and says how heavy that is and what is wrong with
    /// the other (04 §3.8). Metadata that was said last, where the turn has ended, goes with the status it ends with.
    pub(super) fn take_down(
        &mut self,
        runner: &Runner,
        said: &mut Vec<Event>,
        has_ended: bool,
    ) -> (usize, Option<Fault>) {
        let mut state = runner.log.task.status.state;
        let all = runner
            .engine
            .settings
            .max_task_bytes
            .saturating_sub(runner.weight);
        let mut room = all;
        let mut wrong = None;
        let (stray, mut at) = (stray(&runner.log.task, said), 0..);
        let last = said
            .iter()
            .rposition(|event| !is_metadata(event))
            .filter(|_| has_ended);
        let all_metadata = has_ended && last.is_none();
        said.retain_mut(|event| {
            let at = at.next();
            let waits = all_metadata || last.is_some_and(|last| at > Some(last));
            if wrong.is_none() {
                let fault = fault(runner, event).or_else(|| (at == stray).then(|| unknown(event)));
                wrong = fault
                    .map(Fault::Broken)
                    .or_else(|| too_heavy(event, &mut room));
            }
            wrong.is_none() && self.make_ready(runner, event, &mut state, waits)
        });
        (all - room, wrong)
    }

    /// Fills in what the agent left to us; `false` for what only waits for the next status.
    fn make_ready(
        &mut self,
        runner: &Runner,
        event: &mut Event,
        state: &mut TaskState,
        waits: bool,
    ) -> bool {
        if let Event::Status { status, metadata } = event {
            self.hold(metadata.take());
            self.hold(self.stamp.clone());
            match status.state {
                // Metadata alone: a task that says what it needs goes on saying so.
                TaskState::Unspecified if waits || state.is_interrupted() => return false,
                TaskState::Unspecified => *status = TaskStatus::new(TaskState::Working),
                _ => {}
            }
            *state = status.state;
            *metadata = self.held.take();
        }
        fill_ids(runner, event);
        true
    }

    /// What the end of a turn becomes in the log.
    pub(super) fn ending(
        &mut self,
        runner: &Runner,
        ending: Ending,
    ) -> impl Iterator<Item = Event> + use<> {
        let (status, ends) = match ending {
            Ending::Elsewhere => (None, runner.log.turn_runs()),
            ending => (self.last_status(runner, ending), true),
        };
        status.into_iter().chain(ends.then_some(Event::TurnEnded))
    }

    fn last_status(&mut self, runner: &Runner, ending: Ending) -> Option<Event> {
        let said = match ending {
            Ending::Elsewhere => return None,
            Ending::Canceled => status(TaskState::Canceled),
            Ending::Said(Ok(outcome)) => outcome_status(outcome),
            Ending::Said(Err(failure)) => failed(runner, &failure, None),
            Ending::Fault(Fault::Broken(fault)) => broken(runner, fault),
            Ending::Fault(Fault::TooLarge) => too_large(runner),
        };
        let said = match fault(runner, &said) {
            Some(fault) => broken(runner, fault),
            None => said,
        };
        let Event::Status { status, metadata } = said else {
            return None;
        };
        self.hold(metadata);
        self.hold(self.stamp.clone());
        let mut said = Event::Status {
            status,
            metadata: self.held.take(),
        };
        fill_ids(runner, &mut said);
        Some(said)
    }

    fn hold(&mut self, metadata: Option<Object>) {
        match (&mut self.held, metadata) {
            (Some(held), Some(more)) => held.merge(&more),
            (held @ None, more) => *held = more,
            (Some(_), None) => {}
        }
    }
}

/// Whether something is metadata alone.
fn is_metadata(event: &Event) -> bool {
    matches!(event, Event::Status { status, .. } if status.state == TaskState::Unspecified)
}

/// Whether there is no room for something in its task.
fn too_heavy(event: &Event, room: &mut usize) -> Option<Fault> {
    match room.checked_sub(event.weight()) {
        Some(left) => {
            *room = left;
            None
        }
        None => Some(Fault::TooLarge),
    }
}

/// The first chunk that is to go behind an artifact which is neither in the task nor said before it. One behind another of the
/// same artifact, as in a stream of them, costs one comparison.
fn stray(task: &Task, said: &[Event]) -> Option<usize> {
    let mut before = None;
    said.iter().enumerate().position(|(at, event)| {
        let Event::Artifact { append, .. } = event else {
            return false;
        };
        let id = named(event);
        let is_known = |id: &ArtifactId| {
            before == Some(id)
                || task
                    .artifacts
                    .iter()
                    .rev()
                    .any(|known| known.artifact_id == *id)
                || said[..at].iter().any(|event| named(event) == Some(id))
        };
        let is_stray = *append && !id.is_some_and(is_known);
        before = id;
        is_stray
    })
}

fn named(event: &Event) -> Option<&ArtifactId> {
    match event {
        // What is left without an id gets one of its own.
        Event::Artifact { artifact, .. } => Some(&artifact.artifact_id).filter(|id| !id.is_empty()),
        _ => None,
    }
}

fn unknown(event: &Event) -> String {
    Broken::UnknownArtifact(named(event).cloned().unwrap_or_default()).to_string()
}

/// What is wrong with something an agent said, if anything is.
fn fault(runner: &Runner, event: &Event) -> Option<String> {
    match event {
        Event::Artifact { artifact, .. } if artifact.parts.is_empty() => {
            Some(Broken::EmptyArtifact(artifact.artifact_id.clone()).to_string())
        }
        Event::Status {
            status:
                TaskStatus {
                    message: Some(message),
                    ..
                },
            ..
        } => message_fault(runner, message),
        _ => None,
    }
}

fn message_fault(runner: &Runner, message: &Message) -> Option<String> {
    if let Some(id) = message.task_id.as_ref().filter(|id| **id != runner.id) {
        return Some(Broken::OtherTask(id.clone()).to_string());
    }
    if let Some(id) = message
        .context_id
        .as_ref()
        .filter(|id| **id != runner.log.task.context_id)
    {
        return Some(format!("a message of another conversation: {id}"));
    }
    message
        .parts
        .is_empty()
        .then(|| "a message without parts".to_owned())
}

/// Callers read the kind; the cause is for our log.
fn failed(runner: &Runner, failure: &Failure, metadata: Option<Object>) -> Event {
    let cause = failure.cause() as &dyn std::error::Error;
    let agent = &runner.scope.agent;
    tracing::warn!(task = %runner.id, %agent, kind = failure.kind(), cause, "agent failed");
    let status =
        TaskStatus::new(TaskState::Failed).with_message(Message::agent(failure.to_string()));
    Event::Status { status, metadata }
}

fn broken(runner: &Runner, fault: String) -> Event {
    failed(
        runner,
        &Failure::new(reason::INVALID, fault),
        Some(reason::metadata(reason::INVALID)),
    )
}

fn too_large(runner: &Runner) -> Event {
    let cause = "the task has grown beyond max_task_bytes";
    failed(
        runner,
        &Failure::new(reason::TOO_LARGE, cause),
        Some(reason::metadata(reason::TOO_LARGE)),
    )
}

fn outcome_status(outcome: Outcome) -> Event {
    match outcome {
        Outcome::Completed => status(TaskState::Completed),
        Outcome::CompletedWith(message) => said(TaskState::Completed, message),
        Outcome::InputRequired(Question {
            mut message,
            request,
        }) => {
            if let Some(request) = request {
                message
                    .metadata
                    .get_or_insert_default()
                    .insert(INPUT_REQUEST, request);
                message.extensions.push(INPUT_REQUEST.to_owned());
            }
            said(TaskState::InputRequired, message)
        }
        Outcome::AuthRequired(message) => said(TaskState::AuthRequired, message),
        Outcome::Rejected(message) => said(TaskState::Rejected, message),
        Outcome::Failed(message) => said(TaskState::Failed, message),
    }
}

fn said(state: TaskState, message: Message) -> Event {
    Event::Status {
        status: TaskStatus::new(state).with_message(message),
        metadata: None,
    }
}

/// What a task that was cut off ends with.
pub(in crate::engine) fn interrupted(runner: &Runner, why: &'static str) -> Vec<Event> {
    let message = Message::agent(format!("Agent execution failed ({why})"));
    let status = TaskStatus::new(TaskState::Failed).with_message(message);
    let mut failed = Event::Status {
        status,
        metadata: Some(reason::metadata(why)),
    };
    fill_ids(runner, &mut failed);
    let turn_ended = runner.log.turn_runs().then_some(Event::TurnEnded);
    [failed].into_iter().chain(turn_ended).collect()
}

/// Fills what the agent left to us: ids, and the task that its messages belong to.
fn fill_ids(runner: &Runner, event: &mut Event) {
    match event {
        Event::Artifact { artifact, .. } if artifact.artifact_id.is_empty() => {
            artifact.artifact_id = runner.engine.clock.id().into();
        }
        Event::Status { status, .. } => {
            if let Some(message) = &mut status.message {
                let message = Arc::make_mut(message);
                if message.message_id.is_empty() {
                    message.message_id = runner.engine.clock.id().into();
                }
                message.task_id = Some(runner.id.clone());
                message.context_id = Some(runner.log.task.context_id.clone());
            }
        }
        Event::Created { .. }
        | Event::Message(_)
        | Event::Traced(_)
        | Event::TurnStarted
        | Event::Artifact { .. }
        | Event::CancelRequested { .. }
        | Event::Ignored { .. }
        | Event::TurnEnded => {}
    }
}
