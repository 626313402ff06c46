//! Questions to the caller that block a tool call, and their answers.

use attache::model::{Content, INPUT_REQUEST, Json, Message};
use attache::{Outcome, Question};
use serde_json::{Value, json};

use super::prompt::message_text;
use super::tool::ToolOutput;
use crate::chat_model::ToolCall;

/// Answers that approve a call, in lower case.
const CONSENT_WORDS: &[&str] = &[
    "yes", "y", "ok", "okay", "approve", "approved", "allow", "ja", "oui", "si",
];

/// Question to the caller. Its request id is the id of the call, so a repeated question has the same one.
pub(super) struct CallerQuestion {
    text: String,
    request: Value,
    needs_auth: bool,
}

impl CallerQuestion {
    /// Asks for approval of a call.
    pub(super) fn approval(call: &ToolCall, has_changed: bool) -> Self {
        let mut text = format!(
            "May `{}` be called with {}? Answer yes or no.",
            call.name,
            arguments_text(call)
        );
        if has_changed {
            text.insert_str(
                0,
                "The definition of the tool has changed since it was reviewed. ",
            );
        }
        Self::new(call, "approval", text)
    }

    /// Asks the caller to execute a tool.
    pub(super) fn tool_use(call: &ToolCall) -> Self {
        let text = format!(
            "Please call `{}` with {} and answer with its result.",
            call.name,
            arguments_text(call)
        );
        Self::new(call, "tool-use", text)
    }

    /// Forwards a question of a delegate, for input or for credentials.
    pub(super) fn delegate(call: &ToolCall, question: &str, needs_auth: bool) -> Self {
        let name = &call.name;
        if !needs_auth {
            return Self::new(call, "question", format!("`{name}` asks: {question}"));
        }
        let text = format!("`{name}` needs credentials: {question}");
        Self {
            needs_auth,
            ..Self::new(call, "credentials", text)
        }
    }

    fn new(call: &ToolCall, wants: &str, text: String) -> Self {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let request = json!({
            "kind": "input-request", "requestId": call.id, "prompt": text, "sensitive": false,
            "wants": wants, "tool": call.name, "arguments": arguments,
        });
        Self {
            text,
            request,
            needs_auth: false,
        }
    }

    /// Returns the outcome that ends the turn with this question.
    pub(super) fn outcome(self) -> Outcome {
        if self.needs_auth {
            let mut message = Message::agent(self.text);
            message
                .metadata
                .get_or_insert_default()
                .insert(INPUT_REQUEST, self.request);
            message.extensions.push(INPUT_REQUEST.to_owned());
            return Outcome::AuthRequired(message);
        }
        Outcome::ask(Question::from(self.text).with_request(Json::from(self.request)))
    }
}

fn arguments_text(call: &ToolCall) -> &str {
    if call.arguments.trim().is_empty() {
        "nothing"
    } else {
        &call.arguments
    }
}

/// Returns whether a message answers a call: it names this call, or none.
pub(super) fn answers_call(message: &Message, id: &str) -> bool {
    let mut results = tool_results(message).peekable();
    results.peek().is_none() || results.any(|result| result["toolUseId"] == id)
}

/// Returns the result of a call: from a `tool-result` data part, or else the text of the message.
pub(super) fn read_result(message: &Message, id: &str) -> ToolOutput {
    let Some(result) = find_result(message, id) else {
        return Ok(message_text(message));
    };
    match &result["error"] {
        Value::Null => Ok(value_text(&result["result"])),
        error => Err(value_text(error)),
    }
}

/// Checks whether the caller approves a call. Anything but a clear yes is a refusal.
///
/// # Errors
/// The caller refuses; the error is the text of the answer.
pub(super) fn check_approval(message: &Message, id: &str) -> Result<(), String> {
    let answer = match find_result(message, id) {
        Some(result) => {
            let result = &result["result"];
            result.get("approved").unwrap_or(result).clone()
        }
        None => approved_member(message).unwrap_or_else(|| Value::from(message_text(message))),
    };
    let text = value_text(&answer);
    let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
    let is_yes = answer.is_string() && CONSENT_WORDS.contains(&word.as_str());
    if answer == Value::Bool(true) || is_yes {
        Ok(())
    } else {
        Err(text)
    }
}

/// Returns the member `approved` of the first data part that has one.
fn approved_member(message: &Message) -> Option<Value> {
    message.parts.iter().find_map(|part| match &part.content {
        Content::Data(data) => data.read::<Value>().ok()?.get("approved").cloned(),
        _ => None,
    })
}

fn find_result(message: &Message, id: &str) -> Option<Value> {
    tool_results(message).find(|result| result["toolUseId"] == id)
}

/// Returns the data parts whose metadata has the kind `tool-result`.
fn tool_results(message: &Message) -> impl Iterator<Item = Value> + '_ {
    message.parts.iter().filter_map(|part| {
        let kind = part.metadata().and_then(|metadata| metadata.get("kind"));
        match &part.content {
            Content::Data(data) if kind.is_some_and(|kind| kind.get() == r#""tool-result""#) => {
                data.read().ok()
            }
            _ => None,
        }
    })
}

fn value_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
