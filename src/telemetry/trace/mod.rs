//! Tracing spans of calls, turns and webhooks, all with one target.
//!
//! Without a subscriber for [`TARGET`] no span is created. With the feature `otel` and an OpenTelemetry layer, spans have a
//! trace context of their own, which is propagated to other servers; otherwise the context of the incoming call is
//! propagated unchanged. Spans never contain the content of messages or artifacts.

#[cfg(feature = "otel")]
#[path = "otel.rs"]
mod context;
#[cfg(not(feature = "otel"))]
#[path = "otel_disabled.rs"]
mod context;
#[cfg(feature = "server")]
mod server_spans;

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Level, Span};

use crate::model::{Binding, Operation, TraceContext, Version};
#[cfg(feature = "server")]
pub(crate) use server_spans::{
    call_span, hook_span, push_span, record_entries, record_failure, record_push_result,
    record_turn_end, span_context, turn_span,
};

/// Target of every span.
pub const TARGET: &str = "a2a";

/// Whether agents may record prompts and responses of models.
static CONTENT: AtomicBool = AtomicBool::new(false);

/// Allows agents to record the prompts and responses of models in their spans. The default is not to.
pub fn enable_content_recording() {
    CONTENT.store(true, Ordering::Relaxed);
}

/// Whether spans may contain the prompts and responses of models.
#[must_use]
pub fn is_content_recording_enabled() -> bool {
    CONTENT.load(Ordering::Relaxed)
}

/// Returns the trace context of the current span, for propagation to other servers; `None` if nothing is traced.
#[must_use]
pub fn current() -> Option<TraceContext> {
    if tracing::span_enabled!(target: TARGET, Level::INFO) {
        context::span_context(&Span::current())
    } else {
        None
    }
}

/// Makes a span the child of a remote parent.
fn with_parent(span: Span, parent: Option<&TraceContext>) -> Span {
    if let Some(parent) = parent.filter(|_| !span.is_disabled()) {
        context::set_parent(&span, parent);
    }
    span
}

/// Returns the span of an outgoing call: a child of the current span, else of the trace that the client was given.
pub(crate) fn client_span(
    operation: Operation,
    binding: Binding,
    version: Version,
    host: Option<&str>,
    parent: Option<&TraceContext>,
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
    // The current span may be a descendant of the given context, so it takes precedence.
    let inherits = !span.is_disabled() && current().is_some();
    with_parent(span, parent.filter(|_| !inherits))
}
