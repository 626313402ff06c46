//! Validation and normalization of an agent's events before they are recorded.

use std::sync::Arc;

use super::{AgentFault, TurnEnd};
use crate::agent::{Failure, Outcome, Question};
use crate::engine::reason;
use crate::engine::runner::{Runner, status_event};
use crate::model::{
    ArtifactId, Event, FoldError, INPUT_REQUEST, Json, Message, Object, Task, TaskState,
    TaskStatus, TraceContext,
};

/// Maximum number of events that record the end of a turn: status and `TurnEnded`.
const ENDING_EVENTS: usize = 2;

/// Validates and normalizes the events of one turn.
pub(super) struct EventNormalizer {
    /// Trace context to add to the metadata of every status (`trace_metadata`).
    trace_metadata: Option<Object>,
    /// Metadata without a status, held for the next one.
    held_metadata: Option<Object>,
}

/// Result of normalizing a list of events.
pub(super) struct Normalized {
    /// Size of the remaining events in bytes.
    pub(super) bytes: usize,
    /// Fault of the first event that cannot be recorded. It and all events after it were removed.
    pub(super) fault: Option<AgentFault>,
}

impl EventNormalizer {
    /// Creates a normalizer. `trace` is recorded in the metadata of every status.
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

    /// Returns a `working` status for an agent that sets none itself.
    pub(super) fn working(&self) -> Event {
        Event::Status {
            status: TaskStatus::new(TaskState::Working),
            metadata: self.trace_metadata.clone(),
        }
    }

    /// Validates and completes `events` (04 §3.8), up to the first one that cannot be recorded.
    ///
    /// If the turn has ended, trailing metadata is held for the final status.
    pub(super) fn normalize(
        &mut self,
        runner: &Runner,
        events: &mut Vec<Event>,
        has_ended: bool,
    ) -> Normalized {
        let mut state = runner.log.task.status.state;
        let max_task_bytes = runner.engine.inner.settings.max_task_bytes;
        let available = max_task_bytes.saturating_sub(runner.task_bytes());
        let mut remaining = available;
        let mut fault = None;
        let orphan_chunk = first_orphan_chunk(&runner.log.task, events);
        let trailing_start = has_ended.then(|| trailing_metadata_start(events));
        let mut indices = 0..;
        events.retain_mut(|event| {
            let index = indices.next();
            let is_trailing = trailing_start.is_some_and(|start| index >= Some(start));
            if fault.is_none() {
                fault = find_fault(runner, event)
                    .or_else(|| (index == orphan_chunk).then(|| unknown_artifact(event)))
                    .map(AgentFault::InvalidResponse)
                    .or_else(|| check_size(event, &mut remaining));
            }
            fault.is_none() && self.normalize_event(runner, event, &mut state, is_trailing)
        });
        Normalized {
            bytes: available - remaining,
            fault,
        }
    }

    /// Completes an event. Returns `false` if it is only metadata, which is held for the next status.
    fn normalize_event(
        &mut self,
        runner: &Runner,
        event: &mut Event,
        state: &mut TaskState,
        is_trailing: bool,
    ) -> bool {
        if let Event::Status { status, metadata } = event {
            self.hold_metadata(metadata.take());
            self.hold_metadata(self.trace_metadata.clone());
            match status.state {
                // Only metadata: must not replace the status of an interrupted task.
                TaskState::Unspecified if is_trailing || state.is_interrupted() => return false,
                TaskState::Unspecified => *status = TaskStatus::new(TaskState::Working),
                _ => {}
            }
            *state = status.state;
            *metadata = self.held_metadata.take();
        }
        fill_ids(runner, event);
        true
    }

    /// Appends the events that record the end of a turn.
    pub(super) fn push_ending(
        &mut self,
        events: &mut Vec<Event>,
        runner: &Runner,
        ending: TurnEnd,
    ) {
        // Another process that has ended the task may have ended the turn, too.
        let ends_turn = !matches!(ending, TurnEnd::EndedElsewhere) || runner.log.is_turn_running();
        events.reserve(ENDING_EVENTS);
        if let Some(status) = self.final_status(runner, ending) {
            events.push(status);
        }
        if ends_turn {
            events.push(Event::TurnEnded);
        }
    }

    fn final_status(&mut self, runner: &Runner, ending: TurnEnd) -> Option<Event> {
        let mut event = match ending {
            TurnEnd::EndedElsewhere => return None,
            TurnEnd::Canceled => status_event(TaskState::Canceled),
            TurnEnd::Returned(Ok(outcome)) => outcome_status(outcome),
            TurnEnd::Returned(Err(failure)) => failed_status(runner, &failure, None),
            TurnEnd::AgentFault(AgentFault::InvalidResponse(fault)) => {
                invalid_response_status(runner, fault)
            }
            TurnEnd::AgentFault(AgentFault::TooLarge) => too_large_status(runner),
            TurnEnd::AgentFault(AgentFault::Denied(message)) => denied_status(message),
        };
        if let Some(fault) = find_fault(runner, &event) {
            event = invalid_response_status(runner, fault);
        }
        if let Event::Status { metadata, .. } = &mut event {
            self.hold_metadata(metadata.take());
            self.hold_metadata(self.trace_metadata.clone());
            *metadata = self.held_metadata.take();
        }
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

/// Returns the index after the last event that is not only metadata.
fn trailing_metadata_start(events: &[Event]) -> usize {
    let last = events.iter().rposition(|event| !is_metadata(event));
    last.map_or(0, |last| last + 1)
}

/// Returns whether an event is only metadata.
fn is_metadata(event: &Event) -> bool {
    matches!(event, Event::Status { status, .. } if status.state == TaskState::Unspecified)
}

/// Subtracts the size of an event from the remaining bytes, or returns a fault if it is larger.
fn check_size(event: &Event, remaining: &mut usize) -> Option<AgentFault> {
    let Some(rest) = remaining.checked_sub(event.memory_size()) else {
        return Some(AgentFault::TooLarge);
    };
    *remaining = rest;
    None
}

/// Returns the index of the first chunk that appends to an unknown artifact: neither in the task nor in an earlier
/// event. Consecutive chunks of one artifact, as in a stream, cost one comparison each.
fn first_orphan_chunk(task: &Task, events: &[Event]) -> Option<usize> {
    let mut previous = None;
    events.iter().enumerate().position(|(index, event)| {
        let Event::Artifact { append, .. } = event else {
            return false;
        };
        let id = artifact_id(event);
        let is_known = |id: &ArtifactId| {
            let mut artifacts = task.artifacts.iter().rev();
            let mut earlier = events[..index].iter();
            previous == Some(id)
                || artifacts.any(|artifact| artifact.artifact_id == *id)
                || earlier.any(|event| artifact_id(event) == Some(id))
        };
        let is_orphan = *append && !id.is_some_and(is_known);
        previous = id;
        is_orphan
    })
}

/// Returns the id of an artifact event. `None` if it is empty: such an artifact gets a new id.
fn artifact_id(event: &Event) -> Option<&ArtifactId> {
    match event {
        Event::Artifact { artifact, .. } => Some(&artifact.artifact_id).filter(|id| !id.is_empty()),
        _ => None,
    }
}

fn unknown_artifact(event: &Event) -> String {
    FoldError::UnknownArtifact(artifact_id(event).cloned().unwrap_or_default()).to_string()
}

/// Returns why an event violates the protocol, if it does.
/// Checks the events that end a turn after hooks have changed them, and adds missing ids.
pub(super) fn check_final_events(runner: &Runner, events: &mut [Event]) -> Result<(), AgentFault> {
    for event in events {
        if let Some(fault) = find_fault(runner, event) {
            return Err(AgentFault::InvalidResponse(fault));
        }
        fill_ids(runner, event);
    }
    Ok(())
}

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
        return Some(format!("the message belongs to another context: {id}"));
    }
    message
        .parts
        .is_empty()
        .then(|| "the message has no parts".to_owned())
}

/// Returns a `failed` status, and logs the cause. The caller sees only the kind of the failure.
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
    let cause = "the task would exceed max_task_bytes";
    failed_status(
        runner,
        &Failure::new(reason::TOO_LARGE, cause),
        Some(reason::metadata(reason::TOO_LARGE)),
    )
}

/// Returns whether to add a `working` status: the task is still `submitted`, and the agent sets no status itself. A
/// turn that completes immediately is never shown as working.
pub(super) fn needs_working_status(runner: &Runner, events: &[Event]) -> bool {
    runner.log.task.status.state == TaskState::Submitted
        && !events
            .iter()
            .any(|event| matches!(event, Event::Status { .. }))
}

/// Returns a `failed` status with the message of the hook. The hook has logged its denial.
fn denied_status(message: String) -> Event {
    let status = TaskStatus::new(TaskState::Failed).with_message(Message::agent(message));
    Event::Status {
        status,
        metadata: Some(reason::metadata(reason::DENIED)),
    }
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
                insert_input_request(&mut message, request);
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

/// Returns the events that end an interrupted or expired task. `text` is the reason for callers.
pub(in crate::engine) fn interruption_events(
    runner: &Runner,
    reason: &'static str,
    text: String,
) -> Vec<Event> {
    let message = Message::agent(text);
    let status = TaskStatus::new(TaskState::Failed).with_message(message);
    let mut failed = Event::Status {
        status,
        metadata: Some(reason::metadata(reason)),
    };
    fill_ids(runner, &mut failed);
    let turn_ended = runner.log.is_turn_running().then_some(Event::TurnEnded);
    [failed].into_iter().chain(turn_ended).collect()
}

/// Adds a plain input request to questions without one: their text, and the id of the message (09, 2.8).
///
/// Runs after the hooks, because it copies the text.
pub(super) fn add_input_requests(events: &mut [Event]) {
    for event in events {
        if let Event::Status { status, .. } = event
            && status.state == TaskState::InputRequired
            && let Some(message) = &mut status.message
            && !has_input_request(message)
        {
            let request = message.plain_input_request();
            insert_input_request(Arc::make_mut(message), request);
        }
    }
}

fn has_input_request(message: &Message) -> bool {
    let metadata = message.metadata.as_ref();
    metadata.is_some_and(|metadata| metadata.get(INPUT_REQUEST).is_some())
}

fn insert_input_request(message: &mut Message, request: Json) {
    let metadata = message.metadata.get_or_insert_default();
    metadata.insert(INPUT_REQUEST, request);
    message.extensions.push(INPUT_REQUEST.to_owned());
}

/// Fills in the missing ids of an event, for hooks. Ids that the agent has set stay, to be validated later.
pub(super) fn fill_missing_ids(runner: &Runner, event: &mut Event) {
    let new_id = || runner.engine.new_id();
    match event {
        Event::Artifact { artifact, .. } if artifact.artifact_id.is_empty() => {
            artifact.artifact_id = new_id().into();
        }
        Event::Status { status, .. } => {
            if let Some(message) = &mut status.message
                && message.message_id.is_empty()
            {
                Arc::make_mut(message).message_id = new_id().into();
            }
        }
        Event::Created { .. }
        | Event::Message(_)
        | Event::TraceContext(_)
        | Event::CallMetadata(_)
        | Event::TurnStarted
        | Event::Artifact { .. }
        | Event::CancelRequested { .. }
        | Event::Ignored { .. }
        | Event::TurnEnded => {}
    }
}

/// Fills in missing ids, and the task and context of messages.
fn fill_ids(runner: &Runner, event: &mut Event) {
    match event {
        Event::Artifact { artifact, .. } if artifact.artifact_id.is_empty() => {
            artifact.artifact_id = runner.engine.new_id().into();
        }
        Event::Status { status, .. } => {
            if let Some(message) = &mut status.message {
                let message = Arc::make_mut(message);
                if message.message_id.is_empty() {
                    message.message_id = runner.engine.new_id().into();
                }
                message.task_id = Some(runner.id.clone());
                message.context_id = Some(runner.log.task.context_id.clone());
            }
        }
        Event::Created { .. }
        | Event::Message(_)
        | Event::TraceContext(_)
        | Event::CallMetadata(_)
        | Event::TurnStarted
        | Event::Artifact { .. }
        | Event::CancelRequested { .. }
        | Event::Ignored { .. }
        | Event::TurnEnded => {}
    }
}
