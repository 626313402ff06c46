//! What an agent says, made ready for the log.

use std::sync::Arc;

use super::{AgentFault, TurnEnd};
use crate::agent::{Failure, Outcome, Question};
use crate::engine::reason;
use crate::engine::runner::{Runner, status_event};
use crate::model::{
    ArtifactId, Event, FoldError, INPUT_REQUEST, Message, Object, Task, TaskState, TaskStatus,
    TraceContext,
};

/// Takes down what the agent of one turn says.
pub(super) struct EventNormalizer {
    /// What is added to the metadata of every status.
    trace_metadata: Option<Object>,
    /// Metadata that waits for the next status.
    held_metadata: Option<Object>,
}

impl EventNormalizer {
    /// One that says with every status which trace it belongs to, if that is wanted.
    pub(super) fn new(trace: Option<&TraceContext>) -> Self {
        let trace_metadata = trace.map(|trace| {
            let mut trace_metadata = Object::new();
            trace_metadata.insert("traceId", trace.trace_id());
            trace_metadata.insert("spanId", trace.span_id());
            trace_metadata
        });
        Self {
            trace_metadata,
            held_metadata: None,
        }
    }

    /// The agent is at work, and does not say so itself.
    pub(super) fn working(&self) -> Event {
        Event::Status {
            status: TaskStatus::new(TaskState::Working),
            metadata: self.trace_metadata.clone(),
        }
    }

    /// Leaves what goes into the log, up to the first thing that cannot, and says how heavy that is and what is wrong with
    /// the other (04 §3.8). Metadata that was said last, where the turn has ended, goes with the status it ends with.
    pub(super) fn normalize(
        &mut self,
        runner: &Runner,
        events: &mut Vec<Event>,
        has_ended: bool,
    ) -> (usize, Option<AgentFault>) {
        let mut state = runner.log.task.status.state;
        let all = runner
            .engine
            .settings
            .max_task_bytes
            .saturating_sub(runner.task_bytes);
        let mut room = all;
        let mut wrong = None;
        let (first_orphan_chunk, mut at) = (first_orphan_chunk(&runner.log.task, events), 0..);
        let last = events
            .iter()
            .rposition(|event| !is_metadata(event))
            .filter(|_| has_ended);
        let all_metadata = has_ended && last.is_none();
        events.retain_mut(|event| {
            let at = at.next();
            let waits = all_metadata || last.is_some_and(|last| at > Some(last));
            if wrong.is_none() {
                let fault = find_fault(runner, event)
                    .or_else(|| (at == first_orphan_chunk).then(|| unknown_artifact(event)));
                wrong = fault
                    .map(AgentFault::InvalidResponse)
                    .or_else(|| check_size(event, &mut room));
            }
            wrong.is_none() && self.normalize_event(runner, event, &mut state, waits)
        });
        (all - room, wrong)
    }

    /// Fills in what the agent left to us; `false` for what only waits for the next status.
    fn normalize_event(
        &mut self,
        runner: &Runner,
        event: &mut Event,
        state: &mut TaskState,
        waits: bool,
    ) -> bool {
        if let Event::Status { status, metadata } = event {
            self.hold_metadata(metadata.take());
            self.hold_metadata(self.trace_metadata.clone());
            match status.state {
                // Metadata alone: a task that says what it needs goes on saying so.
                TaskState::Unspecified if waits || state.is_interrupted() => return false,
                TaskState::Unspecified => *status = TaskStatus::new(TaskState::Working),
                _ => {}
            }
            *state = status.state;
            *metadata = self.held_metadata.take();
        }
        fill_ids(runner, event);
        true
    }

    /// What the end of a turn becomes in the log.
    pub(super) fn ending_events(
        &mut self,
        runner: &Runner,
        ending: TurnEnd,
    ) -> impl Iterator<Item = Event> + use<> {
        let (status, ends) = match ending {
            TurnEnd::EndedElsewhere => (None, runner.log.is_turn_running()),
            ending => (self.final_status(runner, ending), true),
        };
        status.into_iter().chain(ends.then_some(Event::TurnEnded))
    }

    fn final_status(&mut self, runner: &Runner, ending: TurnEnd) -> Option<Event> {
        let event = match ending {
            TurnEnd::EndedElsewhere => return None,
            TurnEnd::Canceled => status_event(TaskState::Canceled),
            TurnEnd::Returned(Ok(outcome)) => outcome_status(outcome),
            TurnEnd::Returned(Err(failure)) => failed_status(runner, &failure, None),
            TurnEnd::AgentFault(AgentFault::InvalidResponse(fault)) => {
                invalid_response_status(runner, fault)
            }
            TurnEnd::AgentFault(AgentFault::TooLarge) => too_large_status(runner),
        };
        let event = match find_fault(runner, &event) {
            Some(fault) => invalid_response_status(runner, fault),
            None => event,
        };
        let Event::Status { status, metadata } = event else {
            return None;
        };
        self.hold_metadata(metadata);
        self.hold_metadata(self.trace_metadata.clone());
        let mut event = Event::Status {
            status,
            metadata: self.held_metadata.take(),
        };
        fill_ids(runner, &mut event);
        Some(event)
    }

    fn hold_metadata(&mut self, metadata: Option<Object>) {
        match (&mut self.held_metadata, metadata) {
            (Some(held_metadata), Some(more)) => held_metadata.merge(&more),
            (held_metadata @ None, more) => *held_metadata = more,
            (Some(_), None) => {}
        }
    }
}

/// Whether something is metadata alone.
fn is_metadata(event: &Event) -> bool {
    matches!(event, Event::Status { status, .. } if status.state == TaskState::Unspecified)
}

/// Whether there is no room for something in its task.
fn check_size(event: &Event, room: &mut usize) -> Option<AgentFault> {
    match room.checked_sub(event.memory_size()) {
        Some(left) => {
            *room = left;
            None
        }
        None => Some(AgentFault::TooLarge),
    }
}

/// The first chunk that is to go behind an artifact which is neither in the task nor said before it. One behind another of the
/// same artifact, as in a stream of them, costs one comparison.
fn first_orphan_chunk(task: &Task, events: &[Event]) -> Option<usize> {
    let mut before = None;
    events.iter().enumerate().position(|(at, event)| {
        let Event::Artifact { append, .. } = event else {
            return false;
        };
        let id = artifact_id(event);
        let is_known = |id: &ArtifactId| {
            before == Some(id)
                || task
                    .artifacts
                    .iter()
                    .rev()
                    .any(|known| known.artifact_id == *id)
                || events[..at]
                    .iter()
                    .any(|event| artifact_id(event) == Some(id))
        };
        let is_stray = *append && !id.is_some_and(is_known);
        before = id;
        is_stray
    })
}

fn artifact_id(event: &Event) -> Option<&ArtifactId> {
    match event {
        // What is left without an id gets one of its own.
        Event::Artifact { artifact, .. } => Some(&artifact.artifact_id).filter(|id| !id.is_empty()),
        _ => None,
    }
}

fn unknown_artifact(event: &Event) -> String {
    FoldError::UnknownArtifact(artifact_id(event).cloned().unwrap_or_default()).to_string()
}

/// What is wrong with something an agent said, if anything is.
fn find_fault(runner: &Runner, event: &Event) -> Option<String> {
    match event {
        Event::Artifact { artifact, .. } if artifact.parts.is_empty() => {
            Some(FoldError::EmptyArtifact(artifact.artifact_id.clone()).to_string())
        }
        Event::Status {
            status:
                TaskStatus {
                    message: Some(message),
                    ..
                },
            ..
        } => find_message_fault(runner, message),
        _ => None,
    }
}

fn find_message_fault(runner: &Runner, message: &Message) -> Option<String> {
    if let Some(id) = message.task_id.as_ref().filter(|id| **id != runner.id) {
        return Some(FoldError::WrongTask(id.clone()).to_string());
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
fn failed_status(runner: &Runner, failure: &Failure, metadata: Option<Object>) -> Event {
    let cause = failure.cause() as &dyn std::error::Error;
    let agent = &runner.scope.agent;
    tracing::warn!(task = %runner.id, %agent, kind = failure.kind(), cause, "agent failed");
    let status =
        TaskStatus::new(TaskState::Failed).with_message(Message::agent(failure.to_string()));
    Event::Status { status, metadata }
}

fn invalid_response_status(runner: &Runner, fault: String) -> Event {
    failed_status(
        runner,
        &Failure::new(reason::INVALID, fault),
        Some(reason::metadata(reason::INVALID)),
    )
}

fn too_large_status(runner: &Runner) -> Event {
    let cause = "the task has grown beyond max_task_bytes";
    failed_status(
        runner,
        &Failure::new(reason::TOO_LARGE, cause),
        Some(reason::metadata(reason::TOO_LARGE)),
    )
}

fn outcome_status(outcome: Outcome) -> Event {
    match outcome {
        Outcome::Completed => status_event(TaskState::Completed),
        Outcome::CompletedWith(message) => status_with_message(TaskState::Completed, message),
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
            status_with_message(TaskState::InputRequired, message)
        }
        Outcome::AuthRequired(message) => status_with_message(TaskState::AuthRequired, message),
        Outcome::Rejected(message) => status_with_message(TaskState::Rejected, message),
        Outcome::Failed(message) => status_with_message(TaskState::Failed, message),
    }
}

fn status_with_message(state: TaskState, message: Message) -> Event {
    Event::Status {
        status: TaskStatus::new(state).with_message(message),
        metadata: None,
    }
}

/// What a task that was cut off ends with.
pub(in crate::engine) fn interruption_events(runner: &Runner, why: &'static str) -> Vec<Event> {
    let message = Message::agent(format!("Agent execution failed ({why})"));
    let status = TaskStatus::new(TaskState::Failed).with_message(message);
    let mut failed = Event::Status {
        status,
        metadata: Some(reason::metadata(why)),
    };
    fill_ids(runner, &mut failed);
    let turn_ended = runner.log.is_turn_running().then_some(Event::TurnEnded);
    [failed].into_iter().chain(turn_ended).collect()
}

/// Fills what the agent left to us: ids, and the task that its messages belong to.
fn fill_ids(runner: &Runner, event: &mut Event) {
    match event {
        Event::Artifact { artifact, .. } if artifact.artifact_id.is_empty() => {
            artifact.artifact_id = runner.engine.clock.new_id().into();
        }
        Event::Status { status, .. } => {
            if let Some(message) = &mut status.message {
                let message = Arc::make_mut(message);
                if message.message_id.is_empty() {
                    message.message_id = runner.engine.clock.new_id().into();
                }
                message.task_id = Some(runner.id.clone());
                message.context_id = Some(runner.log.task.context_id.clone());
            }
        }
        Event::Created { .. }
        | Event::Message(_)
        | Event::TraceContext(_)
        | Event::TurnStarted
        | Event::Artifact { .. }
        | Event::CancelRequested { .. }
        | Event::Ignored { .. }
        | Event::TurnEnded => {}
    }
}
