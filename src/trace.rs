//! What is traced, for whoever follows a request through many programs: spans of [`tracing`], all under one target.
//!
//! Where nobody subscribes to that target no span is made, and what happens costs nothing. With the feature `otel` and a
//! layer of OpenTelemetry the spans have places in a trace, and what is passed on names them; without, what came with a
//! call is passed on as it came. What is said in messages and artifacts is in no span.

#[cfg(feature = "otel")]
#[path = "trace/otel.rs"]
mod place;
#[cfg(not(feature = "otel"))]
#[path = "trace/no_otel.rs"]
mod place;

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::Empty;
use tracing::{Level, Span};

use crate::model::{Binding, Operation, Trace, Version};
#[cfg(feature = "server")]
use crate::model::{ErrorKind, Scope, Task, TaskId, TaskState};

/// The target of every span.
pub const TARGET: &str = "a2a";

static CONTENT: AtomicBool = AtomicBool::new(false);

/// Lets agents write what models are asked and answer into their spans, from now on. Nobody does unless this was called.
pub fn record_content() {
    CONTENT.store(true, Ordering::Relaxed);
}

/// Whether what is said may be in spans.
#[must_use]
pub fn records_content() -> bool {
    CONTENT.load(Ordering::Relaxed)
}

/// The place in a trace of what runs now, to be passed on with what it asks of others; `None` where nothing is traced.
#[must_use]
pub fn current() -> Option<Trace> {
    if tracing::span_enabled!(target: TARGET, Level::INFO) { place::of(&Span::current()) } else { None }
}

/// The place of a span.
pub(crate) fn of(span: &Span) -> Option<Trace> {
    if span.is_disabled() { None } else { place::of(span) }
}

fn below(span: Span, parent: Option<&Trace>) -> Span {
    if let Some(parent) = parent.filter(|_| !span.is_disabled()) {
        place::adopt(&span, parent);
    }
    span
}

/// A call that came in. What its headers say is looked at only if there is a span.
#[cfg(feature = "server")]
pub(crate) fn call(
    operation: Operation,
    (binding, version): (Binding, Version),
    parent: impl FnOnce() -> Option<Trace>,
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
    if span.is_disabled() { span } else { below(span, parent().as_ref()) }
}

/// The call of a span could not be answered.
#[cfg(feature = "server")]
pub(crate) fn failed(span: &Span, kind: ErrorKind) {
    span.record("error.type", tracing::field::debug(kind));
    span.record("otel.status_code", "ERROR");
}

/// A turn of an agent.
#[cfg(feature = "server")]
pub(crate) fn turn(scope: &Scope, task: &Task, attempt: u32, parent: Option<&Trace>) -> Span {
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
    below(span, parent)
}

/// A turn is over, and its task in this state.
#[cfg(feature = "server")]
pub(crate) fn turn_ended(span: &Span, state: TaskState) {
    if span.is_disabled() {
        return;
    }
    span.record("a2a.task.state", state.as_str());
    if state == TaskState::Failed {
        span.record("otel.status_code", "ERROR");
    }
}

/// One attempt to call a webhook.
#[cfg(feature = "server")]
pub(crate) fn push(task: &TaskId, attempt: u32, parent: Option<&Trace>) -> Span {
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
    below(span, parent)
}

/// What became of an attempt to call a webhook.
#[cfg(feature = "server")]
pub(crate) fn pushed(span: &Span, status: Option<u16>, delivered: bool) {
    if let Some(status) = status {
        span.record("http.response.status_code", status);
    }
    if !delivered {
        span.record("otel.status_code", "ERROR");
    }
}

/// A call that goes out, below the trace that the client was given, else below what runs now.
pub(crate) fn outgoing(
    operation: Operation,
    (binding, version): (Binding, Version),
    host: Option<&str>,
    parent: Option<&Trace>,
) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "a2a.request",
        otel.name = %format_args!("a2a.{operation:?}"),
        otel.kind = "client",
        a2a.method = ?operation,
        a2a.binding = binding.as_str(),
        a2a.version = version.as_str(),
        server.address = host,
    );
    // What runs now may be deeper in the same trace than what the client was given.
    let inherits = !span.is_disabled() && current().is_some();
    below(span, parent.filter(|_| !inherits))
}
