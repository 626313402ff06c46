//! What went wrong, in the one shape that every verb reports it in: a code, words, the next step, an exit code.

use std::borrow::Cow;
use std::io;

use attache::model::{Binding, Version};
use attache::wire::errors::{error_name, grpc_code, http_status, jsonrpc_code};
use attache::{Error, ErrorKind};
use serde::Serialize;
use serde_json::Value;

/// Why a verb could not do what it was asked to. Printed as `{"error": …}`, or as lines on stderr.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CliError {
    /// The name A2A has for it, or one of the contract's `A2ACLI_ERR_*` where it has none.
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    /// The next step, best a command.
    pub(crate) hint: Option<String>,
    /// What stood on the wire: a JSON-RPC code, an HTTP status, the name of a gRPC code.
    pub(crate) a2a_code: Option<Value>,
    #[serde(skip)]
    pub(crate) exit: u8,
}

pub(crate) type CliResult<T = ()> = Result<T, CliError>;

const INTERRUPTED: &str = "ATTACHE_ERR_INTERRUPTED";
const CARD_NOT_FOUND: &str = "A2ACLI_ERR_CARD_NOT_FOUND";

/// Nobody reads our stdout any more: as if the signal had ended us.
pub(crate) const EXIT_BROKEN_PIPE: u8 = 141;

impl CliError {
    fn new(code: impl Into<Cow<'static, str>>, exit: u8, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: None,
            a2a_code: None,
            exit,
        }
    }

    /// The command was not understood.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("A2ACLI_ERR_USAGE", 2, message)
    }

    pub(crate) fn card_not_found(message: impl Into<String>) -> Self {
        Self::new(CARD_NOT_FOUND, 3, message)
    }

    pub(crate) fn card_invalid(message: impl Into<String>) -> Self {
        Self::new("A2ACLI_ERR_CARD_INVALID", 1, message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new("A2ACLI_ERR_UNREACHABLE", 3, message)
    }

    pub(crate) fn credentials_missing(message: impl Into<String>) -> Self {
        Self::new("A2ACLI_ERR_CREDENTIALS_MISSING", 4, message)
    }

    pub(crate) fn auth_failed(message: impl Into<String>) -> Self {
        Self::new("A2ACLI_ERR_AUTH_FAILED", 4, message)
    }

    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new("A2ACLI_ERR_TIMEOUT", 5, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new("A2ACLI_ERR_INTERNAL", 1, message)
    }

    /// Somebody asked us to stop.
    pub(crate) fn interrupted(exit: u8) -> Self {
        Self::new(INTERRUPTED, exit, "interrupted")
    }

    /// There is a task, which outlives us.
    pub(crate) fn with_task_note(self) -> Self {
        match self.code == INTERRUPTED {
            true => Self {
                message: format!("{}; the task was not canceled", self.message),
                ..self
            },
            false => self,
        }
    }

    /// Something A2A has a name for, found before any call.
    pub(crate) fn protocol(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(
            protocol_name(kind).unwrap_or("A2ACLI_ERR_INTERNAL"),
            1,
            message,
        )
    }

    /// Says what to do next; a later hint knows more.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Whether somebody answered, and it was no card.
    pub(crate) fn is_card_not_found(&self) -> bool {
        self.code == CARD_NOT_FOUND
    }

    /// Whether there is nobody left to tell.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.exit == EXIT_BROKEN_PIPE
    }

    /// What an agent, or the way to it, said. `supplied` is whether a credential went along.
    pub(crate) fn from_error(error: &Error, binding: Binding, supplied: bool) -> Self {
        let lost = std::error::Error::source(error).is_some();
        let failure = match error.kind() {
            ErrorKind::Unavailable if lost => return Self::from_connection_error(error),
            ErrorKind::PermissionDenied if missing_scope(error).is_some() => {
                let scope = missing_scope(error).unwrap_or_default();
                Self::auth_failed(format!(
                    "{} (the scope {scope} is missing)",
                    message_of(error)
                ))
                .hint(format!(
                    "use a credential with the scope {scope}, or see the wire with --debug"
                ))
            }
            ErrorKind::Unauthenticated | ErrorKind::PermissionDenied if supplied => {
                Self::auth_failed(format!(
                    "the agent does not take the credential: {}",
                    message_of(error)
                ))
                .hint("check the credential and its scopes, or see the wire with --debug")
            }
            ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => Self::credentials_missing(
                message_of(error),
            )
            .hint(
                "give a credential: --bearer or --api-key, better A2ACLI_BEARER or A2ACLI_API_KEY",
            ),
            ErrorKind::RateLimited | ErrorKind::Unavailable => {
                Self::internal(message_of(error)).hint(retry_hint(error))
            }
            ErrorKind::TaskNotFound => Self::protocol(error.kind(), message_of(error))
                .hint("check the id, or see the wire with --debug"),
            kind => match protocol_name(kind) {
                Some(name) => Self::new(name, 1, message_of(error)),
                None => Self::internal(message_of(error)),
            },
        };
        Self {
            a2a_code: Some(wire_code(binding, error.kind())),
            ..failure
        }
    }

    /// The connection could not be made, or broke.
    fn from_connection_error(error: &Error) -> Self {
        let causes =
            std::iter::successors(std::error::Error::source(error), |cause| cause.source());
        let causes: Vec<_> = causes.map(ToString::to_string).collect();
        let said = error.message();
        let why = causes.last().map(String::as_str).unwrap_or_default();
        let failure = match why.is_empty() || said.contains("certificate") {
            true => Self::unreachable(said),
            false => Self::unreachable(format!("{said}: {why}")),
        };
        let has =
            |words: &str| said.contains(words) || causes.iter().any(|cause| cause.contains(words));
        let known = TLS_HINTS
            .iter()
            .find(|(words, _)| has(words))
            .map(|(_, hint)| *hint);
        failure.hint(known.unwrap_or(HINT_UNREACHABLE))
    }
}

/// What to do where nothing more is known of why nobody answers.
pub(crate) const HINT_UNREACHABLE: &str =
    "check the address and that the agent is running, or see the wire with --debug";

/// What goes wrong where one of two does not speak TLS or does not like a certificate, and what to do; the first that fits.
const TLS_HINTS: [(&str, &str); 6] = [
    (
        "CaUsedAsEndEntity",
        "it is that of an authority, which no server may show as its own: the server needs one that the authority has signed",
    ),
    (
        "not valid for name",
        "it is that of another name: call the agent by the name that the certificate has",
    ),
    (
        "CertificateRequired",
        "it wants to see a certificate of yours: --cert <file> --key <file>",
    ),
    (
        "certificate",
        "if you know who vouches for it, say so: --ca <file>",
    ),
    (
        "InvalidContentType",
        "it does not speak TLS there: call it by http://",
    ),
    (
        "invalid HTTP version",
        "it may speak TLS there: call it by https://",
    ),
];

/// When to come again.
fn retry_hint(error: &Error) -> String {
    let when = match error.retry_after() {
        Some(after) => format!("try again in {} s", after.as_secs_f64().ceil()),
        None => "try again later".to_owned(),
    };
    match error.message().contains("_tasks = ") {
        true => {
            format!(
                "look at them with `attache task list`, end some with `attache task cancel`, or {when}"
            )
        }
        false => when,
    }
}

/// The scopes that were missing, where the agent names them.
fn missing_scope(error: &Error) -> Option<&str> {
    error
        .metadata()
        .find(|(key, scopes)| *key == "scope" && !scopes.is_empty())
        .map(|(_, scopes)| scopes)
}

/// The error's own words.
fn message_of(error: &Error) -> String {
    error.message().to_owned()
}

/// The name that A2A gives it; `None` where A2A has no name for it.
fn protocol_name(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::RateLimited
        | ErrorKind::Unavailable
        | ErrorKind::Canceled
        | ErrorKind::DeadlineExceeded
        | ErrorKind::Other(_) => None,
        ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::PayloadTooLarge
        | ErrorKind::RequestTimeout
        | ErrorKind::MethodNotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::InvalidParams
        | ErrorKind::Internal
        | ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported => Some(error_name(kind, Version::V1)),
    }
}

fn wire_code(binding: Binding, kind: ErrorKind) -> Value {
    match binding {
        Binding::JsonRpc => jsonrpc_code(kind).into(),
        Binding::HttpJson => http_status(kind, Version::V1).into(),
        Binding::Grpc => grpc_code(kind, Version::V1).as_str().into(),
    }
}

impl From<io::Error> for CliError {
    /// Writing a result failed: nobody reads it, or the disk is full.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new("", EXIT_BROKEN_PIPE, ""),
            _ => Self::internal(format!("cannot write: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn out_004_a_condition_that_a2a_names_keeps_its_name_on_every_binding() {
        let failure =
            |binding| CliError::from_error(&ErrorKind::TaskNotFound.into(), binding, false);
        let codes =
            Binding::ALL.map(|binding| failure(binding).a2a_code.unwrap_or_default().to_string());
        assert_eq!(codes, ["-32001", "404", "\"NOT_FOUND\""]);
        assert!(
            Binding::ALL
                .iter()
                .all(|binding| failure(*binding).code == "TaskNotFoundError")
        );
        let limited =
            CliError::from_error(&ErrorKind::RateLimited.into(), Binding::HttpJson, false);
        assert_eq!(
            (limited.code.as_ref(), limited.exit),
            ("A2ACLI_ERR_INTERNAL", 1)
        );
        assert_eq!(limited.hint.as_deref(), Some("try again later"));
        let limited =
            || Error::from(ErrorKind::RateLimited).with_retry_after(Duration::from_millis(2500));
        let full =
            limited().with_message("too many open tasks for this caller (limit: open_tasks = 10000)");
        let hint = |error| {
            CliError::from_error(&error, Binding::HttpJson, true)
                .hint
                .unwrap_or_default()
        };
        assert_eq!(hint(limited()), "try again in 3 s");
        assert!(hint(full).contains("attache task cancel"));
    }

    #[test]
    fn auth_009_whoever_wants_a_certificate_is_told_apart_from_who_is_not_there() {
        let lost = |cause: &'static str| {
            let error = Error::new(ErrorKind::Unavailable)
                .with_message("the connection was lost")
                .with_source(cause);
            CliError::from_error(&error, Binding::HttpJson, false)
        };
        let wanted = lost("received fatal alert: CertificateRequired");
        assert_eq!(
            (wanted.code.as_ref(), wanted.exit),
            ("A2ACLI_ERR_UNREACHABLE", 3)
        );
        assert!(
            wanted
                .hint
                .unwrap_or_default()
                .contains("--cert <file> --key <file>")
        );
        assert!(
            !lost("channel closed")
                .hint
                .unwrap_or_default()
                .contains("--cert")
        );
    }

    #[test]
    fn exit_001_a_refused_credential_is_told_from_a_missing_one() {
        let refused =
            CliError::from_error(&ErrorKind::Unauthenticated.into(), Binding::HttpJson, true);
        assert_eq!(
            (refused.code.as_ref(), refused.exit),
            ("A2ACLI_ERR_AUTH_FAILED", 4)
        );
        let narrow = Error::from(ErrorKind::PermissionDenied).with_detail("scope", "deploy");
        let narrow = CliError::from_error(&narrow, Binding::HttpJson, true);
        assert!(
            narrow.exit == 4 && narrow.message.contains("deploy"),
            "{narrow:?}"
        );
        let missing =
            CliError::from_error(&ErrorKind::Unauthenticated.into(), Binding::HttpJson, false);
        assert_eq!(
            (missing.code.as_ref(), missing.exit),
            ("A2ACLI_ERR_CREDENTIALS_MISSING", 4)
        );
    }
}
