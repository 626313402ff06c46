//! Trace spans of model calls, by the OpenTelemetry conventions for generative AI. Prompts and completions are recorded
//! only if the operator enabled content recording.

use attache::telemetry::trace::{TARGET, is_content_recording_enabled};
use serde_json::{Value, json};
use tracing::Span;
use tracing::field::Empty;

use super::{Completion, ModelSettings};

/// Creates the span of a chat completion.
pub(super) fn chat_span(settings: &ModelSettings, messages: &[Value]) -> Span {
    let uri = settings.url.parse::<http::Uri>().unwrap_or_default();
    let span = tracing::info_span!(
        target: TARGET,
        "chat",
        otel.name = %format_args!("chat {}", settings.name),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "chat",
        // The provider of the API, not of the model.
        gen_ai.provider.name = "openai",
        gen_ai.request.model = settings.name,
        gen_ai.request.temperature = settings.temperature,
        gen_ai.request.top_p = settings.top_p,
        gen_ai.request.max_tokens = settings.max_tokens,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        server.address = uri.host(),
        server.port = uri.port_u16(),
        error.type = Empty,
    );
    if !span.is_disabled() && is_content_recording_enabled() {
        span.record("gen_ai.input.messages", Value::from(messages).to_string());
    }
    span
}

/// Records usage, finish reason and content of a completion.
pub(crate) fn record_completion(span: &Span, completion: &Completion) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.usage.input_tokens", completion.usage.input_tokens);
    span.record("gen_ai.usage.output_tokens", completion.usage.output_tokens);
    if let Some(finish) = &completion.finish {
        span.record(
            "gen_ai.response.finish_reasons",
            json!([finish]).to_string(),
        );
    }
    if is_content_recording_enabled() {
        let text = json!({"type": "text", "content": completion.text});
        let calls = completion.calls.iter().map(|call| {
            json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
        });
        let parts: Vec<_> = [text].into_iter().chain(calls).collect();
        let message =
            json!([{"role": "assistant", "parts": parts, "finish_reason": completion.finish}]);
        span.record("gen_ai.output.messages", message.to_string());
    }
}

/// Marks a span as failed.
pub(crate) fn record_error(span: &Span, kind: &'static str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}
