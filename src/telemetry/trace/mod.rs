//! What is traced, for whoever follows a request through many programs: spans of [`tracing`], all under one target.
//!
//! Where nobody subscribes to that target no span is made, and what happens costs nothing. With the feature `otel` and a
//! layer of OpenTelemetry the spans have places in a trace, and what is passed on names them; without, what came with a
//! call is passed on as it came. What is said in messages and artifacts is in no span.

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
    call_span, push_span, record_failure, record_push_result, record_turn_end, span_context,
    turn_span,
};

/// The target of every span.
pub const TARGET: &str = "a2a";

static CONTENT: AtomicBool = AtomicBool::new(false);

/// Lets agents write what models are asked and answer into their spans, from now on. Nobody does unless this was called.
pub fn enable_content_recording() {
    CONTENT.store(true, Ordering::Relaxed);
}

/// Whether what is said may be in spans.
#[must_use]
pub fn is_content_recording_enabled() -> bool {
    CONTENT.load(Ordering::Relaxed)
}

/// The place in a trace of what runs now, to be passed on with what it asks of others; `None` where nothing is traced.
#[must_use]
pub fn current() -> Option<TraceContext> {
    if tracing::span_enabled!(target: TARGET, Level::INFO) {
        context::span_context(&Span::current())
    } else {
        None
    }
}

fn with_parent(span: Span, parent: Option<&TraceContext>) -> Span {
    if let Some(parent) = parent.filter(|_| !span.is_disabled()) {
        context::set_parent(&span, parent);
    }
    span
}

/// A call that goes out, below the trace that the client was given, else below what runs now.
pub(crate) fn client_span(
    operation: Operation,
    (binding, version): (Binding, Version),
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
    // What runs now may be deeper in the same trace than what the client was given.
    let inherits = !span.is_disabled() && current().is_some();
    with_parent(span, parent.filter(|_| !inherits))
}
