//! Accumulation of completion chunks, in the dialects of OpenAI, vLLM, llama.cpp and Ollama.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of tool calls in one completion.
const MAX_CALLS: usize = 64;

/// Completion accumulated from chunks.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) usage: TokenUsage,
    /// Finish reason, once the completion has ended.
    pub(crate) finish: Option<String>,
    /// `index` of each call in the stream, if the endpoint sends one.
    indexes: Vec<Option<u64>>,
}

/// Tool call requested by the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON text of the arguments, as the model wrote it. It may be invalid.
    pub(crate) arguments: String,
}

/// Token counts of a completion; 0 if the endpoint does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TokenUsage {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// Error reported by the endpoint in an event.
#[derive(Debug)]
pub(super) struct ErrorEvent(pub(super) String);

/// Text and reasoning of one event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) text: String,
    pub(super) reasoning: String,
}

impl Completion {
    /// Applies a chunk, or the whole response of an endpoint that does not stream.
    pub(super) fn apply(&mut self, event: &Value) -> Result<Delta, ErrorEvent> {
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(ErrorEvent(error.to_string()));
        }
        self.record_usage(&event["usage"]);
        let choice = &event["choices"][0];
        let finish = choice["finish_reason"].as_str();
        if let Some(finish) = finish.filter(|finish| !finish.is_empty()) {
            self.finish = Some(finish.to_owned());
        }
        let message = if choice["delta"].is_object() {
            &choice["delta"]
        } else {
            &choice["message"]
        };
        let reasoning = [&message["reasoning_content"], &message["reasoning"]];
        let reasoning = reasoning
            .into_iter()
            .map(text_of)
            .find(|text| !text.is_empty())
            .unwrap_or_default();
        let delta = Delta {
            text: text_of(&message["content"]),
            reasoning,
        };
        self.text.push_str(&delta.text);
        self.reasoning.push_str(&delta.reasoning);
        for fragment in message["tool_calls"].as_array().into_iter().flatten() {
            self.apply_call_fragment(fragment)?;
        }
        Ok(delta)
    }

    fn record_usage(&mut self, usage: &Value) {
        let number = |name: &str| usage[name].as_u64();
        // Some endpoints send running totals with every chunk, so later counts replace earlier ones.
        self.usage.input_tokens = number("prompt_tokens").unwrap_or(self.usage.input_tokens);
        self.usage.output_tokens = number("completion_tokens").unwrap_or(self.usage.output_tokens);
    }

    /// Applies a fragment of a tool call.
    ///
    /// Fragments of one call have the same `index`. Some endpoints omit it or use one index for all calls: then a new id
    /// starts a new call.
    fn apply_call_fragment(&mut self, fragment: &Value) -> Result<(), ErrorEvent> {
        let index = fragment["index"].as_u64();
        let id = fragment["id"].as_str().unwrap_or_default();
        let name = fragment["function"]["name"].as_str().unwrap_or_default();
        let at = match index {
            Some(_) => self.indexes.iter().rposition(|known| *known == index),
            None => self
                .calls
                .len()
                .checked_sub(1)
                .filter(|_| id.is_empty() && name.is_empty()),
        };
        let is_continuation = |call: &ToolCall| {
            id.is_empty() || call.id.is_empty() || call.id == id || name.is_empty()
        };
        let at = match at.filter(|at| is_continuation(&self.calls[*at])) {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => {
                return Err(ErrorEvent(format!(
                    "more than {MAX_CALLS} tool calls in one completion"
                )));
            }
            None => {
                self.calls.push(ToolCall::default());
                self.indexes.push(index);
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        if call.name.is_empty() {
            call.name.push_str(name);
        }
        match &fragment["function"]["arguments"] {
            Value::String(text) => call.arguments.push_str(text),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
        Ok(())
    }
}

/// Returns the text of a string, or of a list of content parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn completion(deltas: &[Value]) -> Completion {
        let mut completion = Completion::default();
        for delta in deltas {
            completion
                .apply(&json!({"choices": [{"delta": delta}]}))
                .unwrap();
        }
        completion
    }

    fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
        ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    #[test]
    fn call_fragments_are_joined_in_every_dialect() {
        let both = [call("a", "f", r#"{"x":1}"#), call("b", "g", "{}")];
        let openai = [
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"x\""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
            json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]}),
        ];
        let vllm = [
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}),
            json!({"tool_calls": [{"index": 0, "id": null, "function": {"name": null, "arguments": "{\"x\":1}"}}]}),
            json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]}),
        ];
        let ollama = [
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}),
            json!({"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": {}}}]}),
        ];
        let without_index = [
            json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{\"x\""}}]}),
            json!({"tool_calls": [{"function": {"arguments": ":1}"}}]}),
            json!({"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": {}}}]}),
        ];
        for dialect in [&openai[..], &vllm[..], &ollama[..], &without_index[..]] {
            assert_eq!(completion(dialect).calls, both, "{dialect:?}");
        }
    }

    #[test]
    fn reasoning_text_and_usage_are_separated() {
        let mut completion = completion(&[
            json!({"reasoning_content": "hm"}),
            json!({"content": "a"}),
            json!({"content": null}),
        ]);
        completion
            .apply(&json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}))
            .unwrap();
        completion
            .apply(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": null}))
            .unwrap();
        assert_eq!(
            (completion.reasoning.as_str(), completion.text.as_str()),
            ("hm", "a")
        );
        assert_eq!(
            (
                completion.usage.input_tokens,
                completion.usage.output_tokens
            ),
            (3, 2)
        );
        assert_eq!(completion.finish.as_deref(), Some("stop"));
        assert!(
            completion
                .apply(&json!({"error": {"message": "out of memory"}}))
                .is_err()
        );
    }
}
