//! What a trace is told of tools, in the words that OpenTelemetry has for them. What is said is told only where the
//! operator wants that.

use attache::trace::{TARGET, records_content};
use tracing::Span;
use tracing::field::Empty;

use super::tool::Given;
use crate::model::{Call, failed};

/// A tool is called.
pub(super) fn tool(call: &Call) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "execute_tool",
        otel.name = %format_args!("execute_tool {}", call.name),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = call.name,
        gen_ai.tool.call.id = call.id,
        gen_ai.tool.type = "function",
        gen_ai.tool.call.arguments = Empty,
        gen_ai.tool.call.result = Empty,
        error.type = Empty,
    );
    if !span.is_disabled() && records_content() {
        span.record("gen_ai.tool.call.arguments", &*call.arguments);
    }
    span
}

/// A tool has given this.
pub(super) fn given(span: &Span, given: &Given) {
    if span.is_disabled() {
        return;
    }
    if given.is_err() {
        failed(span, "tool");
    }
    if records_content() {
        span.record(
            "gen_ai.tool.call.result",
            given.as_ref().map_or_else(String::as_str, String::as_str),
        );
    }
}
