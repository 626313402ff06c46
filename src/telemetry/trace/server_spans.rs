//! Spans of a server: incoming calls, turns and webhook attempts.

use tracing::Span;
use tracing::field::Empty;

use super::{TARGET, context, with_parent};
use crate::model::{
    Binding, ErrorKind, Event, Operation, Scope, Task, TaskId, TaskState, TraceContext, Version,
};

/// Returns the trace context of a span.
pub(crate) fn span_context(span: &Span) -> Option<TraceContext> {
    if span.is_disabled() {
        None
    } else {
        context::span_context(span)
    }
}

/// Returns the span of an incoming call. `parent` is evaluated only if the span is enabled.
pub(crate) fn call_span(
    operation: Operation,
    binding: Binding,
    version: Version,
    parent: impl FnOnce() -> Option<TraceContext>,
) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        parent: None,
        "a2a.call",
        otel.name = %format_args!("a2a.{operation:?}"),
        otel.kind = "server",
        otel.status_code = Empty,
        a2a.method = ?operation,
        a2a.binding = binding.as_str(),
        a2a.version = version.as_str(),
        error.type = Empty,
    );
    if span.is_disabled() {
        span
    } else {
        with_parent(span, parent().as_ref())
    }
}

/// Marks the span of a failed call.
pub(crate) fn record_failure(span: &Span, kind: ErrorKind) {
    span.record("error.type", tracing::field::debug(kind));
    span.record("otel.status_code", "ERROR");
}

/// Returns the span of a turn.
pub(crate) fn turn_span(
    scope: &Scope,
    task: &Task,
    attempt: u32,
    parent: Option<&TraceContext>,
) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        parent: None,
        "a2a.turn",
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = &*scope.agent,
        gen_ai.conversation.id = %task.context_id,
        a2a.task.id = %task.id,
        a2a.attempt = attempt,
        a2a.task.state = Empty,
    );
    with_parent(span, parent)
}

/// Records the state of the task at the end of its turn.
pub(crate) fn record_turn_end(span: &Span, state: TaskState) {
    if span.is_disabled() {
        return;
    }
    span.record("a2a.task.state", state.as_str());
    if state == TaskState::Failed {
        span.record("otel.status_code", "ERROR");
    }
}

/// Adds one event per log entry to a span. Entries have no content there.
pub(crate) fn record_entries(span: &Span, entries: &[Event]) {
    for entry in entries {
        let (name, attribute) = match entry {
            Event::Created { .. } => ("a2a.created", None),
            Event::Message(message) => {
                let id = message.message_id.to_string();
                ("a2a.message", Some(("a2a.message.id", id)))
            }
            Event::TraceContext(_) => ("a2a.trace_context", None),
            Event::CallMetadata(_) => ("a2a.call_metadata", None),
            Event::TurnStarted => ("a2a.turn_started", None),
            Event::Status { status, .. } => {
                let state = status.state.as_str().to_owned();
                ("a2a.status", Some(("a2a.task.state", state)))
            }
            Event::Artifact { artifact, .. } => {
                let id = artifact.artifact_id.to_string();
                ("a2a.artifact", Some(("a2a.artifact.id", id)))
            }
            Event::CancelRequested { .. } => ("a2a.cancel_requested", None),
            Event::Ignored { .. } => ("a2a.ignored", None),
            Event::TurnEnded => ("a2a.turn_ended", None),
        };
        context::add_event(span, name, attribute);
    }
}

/// Returns the span of one attempt to call a webhook.
pub(crate) fn push_span(task: &TaskId, attempt: u32, parent: Option<&TraceContext>) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        parent: None,
        "a2a.push",
        otel.kind = "client",
        otel.status_code = Empty,
        a2a.task.id = %task,
        a2a.attempt = attempt,
        http.request.method = "POST",
        http.response.status_code = Empty,
    );
    with_parent(span, parent)
}

/// Records the result of an attempt to call a webhook.
pub(crate) fn record_push_result(span: &Span, status: Option<u16>, delivered: bool) {
    if let Some(status) = status {
        span.record("http.response.status_code", status);
    }
    if !delivered {
        span.record("otel.status_code", "ERROR");
    }
}

/// Returns the span of one run of a hook that calls another process: a child of the current span.
pub(crate) fn hook_span(hook: &str, phase: &'static str, task: Option<&TaskId>) -> Span {
    tracing::info_span!(
        target: TARGET,
        "a2a.hook",
        otel.kind = "client",
        attache.hook.name = hook,
        attache.hook.phase = phase,
        a2a.task.id = task.map(tracing::field::display),
    )
}
