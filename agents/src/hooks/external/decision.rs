//! Decisions of external hooks.

use attache::model::{Error, ErrorKind};
use attache::{HookError, HookPhase};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Maximum length of the message for the caller, in bytes.
const MAX_MESSAGE_BYTES: usize = 4096;

/// Message for the caller if the hook names none.
const DEFAULT_MESSAGE: &str = "the policy of this server forbids it";

/// Decision of an external hook.
pub(super) enum Decision {
    Allow,
    /// JSON of the changed request, response or event.
    Change(Box<RawValue>),
    Deny(Denial),
}

/// Refusal of an external hook.
pub(super) struct Denial {
    kind: DenialKind,
    message: Option<String>,
}

/// Error that the caller of a refused call reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DenialKind {
    /// Permission denied.
    #[default]
    PermissionDenied,
    /// Invalid parameters.
    InvalidParams,
    /// Too many requests.
    RateLimited,
}

impl From<DenialKind> for ErrorKind {
    fn from(kind: DenialKind) -> Self {
        match kind {
            DenialKind::PermissionDenied => Self::PermissionDenied,
            DenialKind::InvalidParams => Self::InvalidParams,
            DenialKind::RateLimited => Self::RateLimited,
        }
    }
}

/// Reply as the hook writes it. Further members are ignored, so a reply may repeat the document.
#[derive(Deserialize)]
struct Reply {
    decision: DecisionName,
    request: Option<Box<RawValue>>,
    response: Option<Box<RawValue>>,
    event: Option<Box<RawValue>>,
    message: Option<String>,
    error: Option<DenialKind>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DecisionName {
    Allow,
    Change,
    Deny,
}

impl Decision {
    /// Parses the reply to a document.
    ///
    /// # Errors
    /// The reply is no decision, or `change` lacks the changed request, response or event. No content is quoted.
    pub(super) fn parse(reply: &[u8], phase: HookPhase) -> Result<Self, HookError> {
        let reply: Reply = serde_json::from_slice(reply).map_err(|error| {
            let line = error.line();
            let column = error.column();
            format!("the reply is no decision (line {line}, column {column})")
        })?;
        let (member, changed) = match phase {
            HookPhase::Call => ("request", reply.request),
            HookPhase::Response => ("response", reply.response),
            HookPhase::Event => ("event", reply.event),
        };
        Ok(match reply.decision {
            DecisionName::Allow => Self::Allow,
            DecisionName::Change => {
                let missing = || format!("the reply has `decision: change` without `{member}`");
                Self::Change(changed.ok_or_else(missing)?)
            }
            DecisionName::Deny => Self::Deny(Denial {
                kind: reply.error.unwrap_or_default(),
                message: reply.message,
            }),
        })
    }
}

impl From<Denial> for HookError {
    fn from(denial: Denial) -> Self {
        let mut message = denial.message.unwrap_or_default();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        if message.is_empty() {
            DEFAULT_MESSAGE.clone_into(&mut message);
        }
        Self::deny_with(Error::new(denial.kind.into()).with_message(message))
    }
}

/// Reads a changed `member` of a reply.
///
/// # Errors
/// It has another form. No content is quoted.
pub(super) fn decode<T: DeserializeOwned>(json: &RawValue, member: &str) -> Result<T, HookError> {
    serde_json::from_str(json.get()).map_err(|error| {
        let column = error.column();
        format!("`{member}` of the reply has an invalid form at column {column}").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(reply: &str) -> String {
        match Decision::parse(reply.as_bytes(), HookPhase::Event) {
            Ok(_) => "parsed".to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn a_reply_without_a_decision_is_a_failure_that_quotes_nothing() {
        for (reply, reason) in [
            ("", "line 1, column 0"),
            ("hunter2", "line 1, column 1"),
            ("{}", "no decision"),
            (r#"{"decision": "hunter2"}"#, "no decision"),
            (r#"{"decision": "allow"} hunter2"#, "no decision"),
            (
                r#"{"decision": "change", "request": {}}"#,
                "without `event`",
            ),
        ] {
            let cause = cause(reply);
            assert!(cause.contains(reason), "{reply}: {cause}");
            assert!(!cause.contains("hunter2"), "{cause}");
        }
    }

    #[test]
    fn a_denial_has_a_bounded_message() {
        let long = "é".repeat(MAX_MESSAGE_BYTES);
        let reply = format!(r#"{{"decision": "deny", "message": "{long}"}}"#);
        let Ok(Decision::Deny(denial)) = Decision::parse(reply.as_bytes(), HookPhase::Call) else {
            panic!("no denial");
        };
        let shown = format!("{:?}", HookError::from(denial));
        assert!(shown.len() < 2 * MAX_MESSAGE_BYTES, "{}", shown.len());
    }
}
