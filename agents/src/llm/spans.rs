//! Trace spans of tool calls, by the OpenTelemetry conventions for generative AI. Arguments and results are recorded only
//! if the operator enabled content recording.

use attache::telemetry::trace::{TARGET, is_content_recording_enabled};
use tracing::Span;
use tracing::field::Empty;

use super::tool::ToolOutput;
use crate::chat_model::{ToolCall, record_error};

/// Creates the span of a tool call.
pub(super) fn tool_span(call: &ToolCall) -> Span {
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
    if !span.is_disabled() && is_content_recording_enabled() {
        span.record("gen_ai.tool.call.arguments", &*call.arguments);
    }
    span
}

/// Records the output of a tool call.
pub(super) fn record_output(span: &Span, output: &ToolOutput) {
    if span.is_disabled() {
        return;
    }
    if output.is_err() {
        record_error(span, "tool");
    }
    if is_content_recording_enabled() {
        span.record(
            "gen_ai.tool.call.result",
            output.as_ref().map_or_else(String::as_str, String::as_str),
        );
    }
}
