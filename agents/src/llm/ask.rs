//! What the caller is asked before the work can go on, and what they answer.

use attache::model::{Content, Json, Message};
use attache::{Outcome, Question};
use serde_json::{Value, json};

use super::calls::data_of_kind;
use super::talk::prompt;
use super::tool::Given;
use crate::model::Call;

/// What people say who agree.
const CONSENT: &[&str] = &["yes", "y", "ok", "okay", "approve", "approved", "allow", "ja", "oui", "si"];

/// A question to the caller. Its id is that of the call, so it stays the same however often it is asked.
pub(super) struct Ask {
    words: String,
    request: Value,
}

/// What the caller says.
pub(super) enum Reply {
    /// A result, as a program gives it or as a person types it.
    Given(Given),
    /// Whether they agree, as a program says it.
    Consent(bool),
}

impl Ask {
    /// Whether a call may be made.
    pub(super) fn approval(call: &Call) -> Self {
        let words = format!("May `{}` be called with {}? Answer yes or no.", call.name, given(call));
        Self::new(call, "approval", words)
    }

    /// To do what a tool of the caller's does.
    pub(super) fn tool(call: &Call) -> Self {
        let words = format!("Please call `{}` with {} and answer with its result.", call.name, given(call));
        Self::new(call, "tool-use", words)
    }

    /// What another agent wants to know.
    pub(super) fn child(call: &Call, question: &str) -> Self {
        Self::new(call, "question", format!("`{}` asks: {question}", call.name))
    }

    fn new(call: &Call, wants: &str, words: String) -> Self {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let request = json!({
            "kind": "input-request", "requestId": call.id, "prompt": words, "sensitive": false,
            "wants": wants, "tool": call.name, "arguments": arguments,
        });
        Self { words, request }
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome::ask(Question::from(self.words).with_request(Json::from(self.request)))
    }
}

fn given(call: &Call) -> &str {
    if call.arguments.trim().is_empty() { "nothing" } else { &call.arguments }
}

/// Whether a message answers this call: one that names another call does not.
pub(super) fn fits(message: &Message, id: &str) -> bool {
    let mut named = data_of_kind(message, "tool-result").peekable();
    named.peek().is_none() || named.any(|result| result["toolUseId"] == id)
}

pub(super) fn reply(message: &Message, id: &str) -> Reply {
    if let Some(result) = data_of_kind(message, "tool-result").find(|result| result["toolUseId"] == id) {
        let consent = result["result"].as_bool().or_else(|| result["result"]["approved"].as_bool());
        return match (consent, &result["error"]) {
            (_, error) if !error.is_null() => Reply::Given(Err(text(error))),
            (Some(consent), _)
                if result["result"].is_boolean() || result["result"]["approved"].is_boolean() =>
            {
                Reply::Consent(consent)
            }
            _ => Reply::Given(Ok(text(&result["result"]))),
        };
    }
    let consent = message.parts.iter().find_map(|part| match &part.content {
        Content::Data(data) => data.read::<Value>().ok()?["approved"].as_bool(),
        _ => None,
    });
    consent.map_or_else(|| Reply::Given(Ok(prompt(message))), Reply::Consent)
}

impl Reply {
    /// Anything but a clear yes is a no.
    pub(super) fn is_consent(&self) -> bool {
        match self {
            Self::Consent(consent) => *consent,
            Self::Given(given) => given.as_ref().is_ok_and(|text| {
                let text = text.trim().trim_end_matches(['.', '!']).to_lowercase();
                CONSENT.contains(&text.as_str())
            }),
        }
    }

    pub(super) fn words(self) -> String {
        match self {
            Self::Consent(_) => String::new(),
            Self::Given(given) => given.unwrap_or_else(|why| why),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
