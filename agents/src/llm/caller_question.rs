//! What the caller is asked before the work can go on, and what they answer.

use attache::model::{Content, INPUT_REQUEST, Json, Message};
use attache::{Outcome, Question};
use serde_json::{Value, json};

use super::open_calls::data_of_kind;
use super::prompt::message_text;
use super::tool::ToolOutput;
use crate::chat_model::ToolCall;

/// What people say who agree.
const CONSENT_WORDS: &[&str] = &[
    "yes", "y", "ok", "okay", "approve", "approved", "allow", "ja", "oui", "si",
];

/// A question to the caller. Its id is that of the call, so it stays the same however often it is asked.
pub(super) struct CallerQuestion {
    text: String,
    request: Value,
    needs_auth: bool,
}

impl CallerQuestion {
    /// Whether a call may be made.
    pub(super) fn approval(call: &ToolCall, has_changed: bool) -> Self {
        let mut text = format!(
            "May `{}` be called with {}? Answer yes or no.",
            call.name,
            arguments_text(call)
        );
        if has_changed {
            text.insert_str(
                0,
                "The tool says something else of itself than when it was agreed to. ",
            );
        }
        Self::new(call, "approval", text)
    }

    /// To do what a tool of the caller's does.
    pub(super) fn tool_use(call: &ToolCall) -> Self {
        let text = format!(
            "Please call `{}` with {} and answer with its result.",
            call.name,
            arguments_text(call)
        );
        Self::new(call, "tool-use", text)
    }

    /// What another agent wants to know, or to have.
    pub(super) fn delegate_question(call: &ToolCall, question: &str, needs_auth: bool) -> Self {
        match needs_auth {
            false => Self::new(
                call,
                "question",
                format!("`{}` asks: {question}", call.name),
            ),
            true => {
                let text = format!("`{}` needs credentials: {question}", call.name);
                Self {
                    needs_auth,
                    ..Self::new(call, "credentials", text)
                }
            }
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

/// Whether a message answers this call: one that names another call does not.
pub(super) fn answers_call(message: &Message, id: &str) -> bool {
    let mut named = data_of_kind(message, "tool-result").peekable();
    named.peek().is_none() || named.any(|result| result["toolUseId"] == id)
}

/// The result of a call, as a program gives it or as a person types it.
pub(super) fn read_result(message: &Message, id: &str) -> ToolOutput {
    let Some(given) = find_result(message, id) else {
        return Ok(message_text(message));
    };
    match &given["error"] {
        Value::Null => Ok(text(&given["result"])),
        error => Err(text(error)),
    }
}

/// Whether the caller agrees to a call. Anything but a clear yes is a no; gives their words.
pub(super) fn check_approval(message: &Message, id: &str) -> Result<(), String> {
    let data = message.parts.iter().find_map(|part| match &part.content {
        Content::Data(data) => data.read::<Value>().ok()?.get("approved").cloned(),
        _ => None,
    });
    let said = match find_result(message, id) {
        Some(given) => given["result"]
            .get("approved")
            .unwrap_or(&given["result"])
            .clone(),
        None => data.unwrap_or_else(|| Value::from(message_text(message))),
    };
    let text = text(&said);
    let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
    if said == Value::Bool(true) || (said.is_string() && CONSENT_WORDS.contains(&word.as_str())) {
        return Ok(());
    }
    Err(text)
}

fn find_result(message: &Message, id: &str) -> Option<Value> {
    data_of_kind(message, "tool-result").find(|given| given["toolUseId"] == id)
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
