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
#[cfg(feature = "server")]
mod serving;

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Level, Span};

use crate::model::{Binding, Operation, Trace, Version};
#[cfg(feature = "server")]
pub(crate) use serving::{call, failed, of, push, pushed, turn, turn_ended};

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
    if tracing::span_enabled!(target: TARGET, Level::INFO) {
        place::of(&Span::current())
    } else {
        None
    }
}

fn below(span: Span, parent: Option<&Trace>) -> Span {
    if let Some(parent) = parent.filter(|_| !span.is_disabled()) {
        place::adopt(&span, parent);
    }
    span
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
