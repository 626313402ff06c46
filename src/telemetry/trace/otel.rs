//! The places of spans in a trace, as the layer of OpenTelemetry keeps them.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::model::TraceContext;

/// Where a span is; `None` without a layer of OpenTelemetry.
pub(super) fn span_context(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let span = context.span();
    let place = span.span_context();
    if !place.is_valid() {
        return None;
    }
    let (trace, span, flags) = (
        place.trace_id(),
        place.span_id(),
        place.trace_flags().to_u8(),
    );
    let state = place.trace_state().header();
    TraceContext::parse(
        &format!("00-{trace}-{span}-{flags:02x}"),
        Some(&state)
            .filter(|state| !state.is_empty())
            .map(String::as_str),
    )
}

/// Puts a span below a place that may be anywhere.
pub(super) fn set_parent(span: &Span, parent: &TraceContext) {
    let Some(place) = parse_context(parent) else {
        return;
    };
    // Without a layer of OpenTelemetry there is nobody to tell.
    let _ = span.set_parent(Context::new().with_remote_span_context(place));
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
