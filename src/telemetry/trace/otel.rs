//! Trace context of spans, from the OpenTelemetry layer.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::model::TraceContext;

/// Returns the trace context of a span; `None` without an OpenTelemetry layer.
pub(super) fn span_context(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let span = context.span();
    let current = span.span_context();
    if !current.is_valid() {
        return None;
    }
    let trace = current.trace_id();
    let span = current.span_id();
    let flags = current.trace_flags().to_u8();
    let state = current.trace_state().header();
    TraceContext::parse(
        &format!("00-{trace}-{span}-{flags:02x}"),
        Some(&state)
            .filter(|state| !state.is_empty())
            .map(String::as_str),
    )
}

/// Adds an event to a span.
pub(super) fn add_event(
    span: &Span,
    name: &'static str,
    attribute: Option<(&'static str, String)>,
) {
    let attribute = attribute.map(|(key, value)| KeyValue::new(key, value));
    span.add_event(name, attribute.into_iter().collect());
}

/// Makes a span the child of a context of another process.
pub(super) fn set_parent(span: &Span, parent: &TraceContext) {
    let Some(remote) = parse_context(parent) else {
        return;
    };
    // Fails without an OpenTelemetry layer; then there is no trace.
    let _ = span.set_parent(Context::new().with_remote_span_context(remote));
}

fn parse_context(trace: &TraceContext) -> Option<SpanContext> {
    let flags = u8::from_str_radix(trace.parent().get(53..)?, 16).ok()?;
    Some(SpanContext::new(
        TraceId::from_hex(trace.trace_id()).ok()?,
        SpanId::from_hex(trace.span_id()).ok()?,
        TraceFlags::new(flags),
        true,
        trace
            .state()
            .and_then(|state| state.parse::<TraceState>().ok())
            .unwrap_or_default(),
    ))
}
