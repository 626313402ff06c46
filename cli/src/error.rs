//! Errors of the client verbs: a code, a message, the next step and an exit code.

use std::borrow::Cow;
use std::fmt;
use std::io;

use attache::model::{Binding, Version};
use attache::wire::errors::{error_name, grpc_code, http_status, jsonrpc_code};
use attache::{ConnectError, Error, ErrorKind, HttpClient};
use serde::Serialize;
use serde_json::Value;

/// An error of a verb. Printed as `{"error": …}` to stdout, or as lines to stderr.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CliError {
    /// The A2A name of the condition, or an `A2ACLI_ERR_*` of the CLI contract if A2A has none.
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    /// The next step, preferably a command.
    pub(crate) hint: Option<String>,
    /// The code on the wire: a JSON-RPC code, an HTTP status or the name of a gRPC code.
    pub(crate) a2a_code: Option<Value>,
    #[serde(skip)]
    pub(crate) exit: u8,
}

/// Result of a client verb.
pub(crate) type CliResult<T = ()> = Result<T, CliError>;

/// Code of an error of a verb outside the CLI contract.
const FAILED: &str = "ATTACHE_ERR_FAILED";
/// Code of an invalid configuration file.
const CONFIG_INVALID: &str = "ATTACHE_ERR_CONFIG";
const INTERRUPTED: &str = "ATTACHE_ERR_INTERRUPTED";
const CARD_NOT_FOUND: &str = "A2ACLI_ERR_CARD_NOT_FOUND";

/// Exit code if the reader of stdout has closed it: the one of a process that SIGPIPE ends.
pub(crate) const EXIT_BROKEN_PIPE: u8 = 141;

/// Hint for a failed connection of unknown cause.
const HINT_UNREACHABLE: &str =
    "check the address and that the agent is running, or see the requests with --debug";

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

    /// The command line or a setting is invalid.
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

    /// A signal stopped the program; `exit` is the exit code of that signal.
    pub(crate) fn interrupted(exit: u8) -> Self {
        Self::new(INTERRUPTED, exit, "interrupted")
    }

    /// A verb outside the CLI contract failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(FAILED, 1, message)
    }

    /// A configuration file is invalid.
    pub(crate) fn config_invalid(message: impl Into<String>) -> Self {
        Self::new(CONFIG_INVALID, 1, message)
    }

    /// A condition that A2A names, found before any call.
    pub(crate) fn protocol(kind: ErrorKind, message: impl Into<String>) -> Self {
        let code = protocol_name(kind).unwrap_or("A2ACLI_ERR_INTERNAL");
        Self::new(code, 1, message)
    }

    /// Adds to an interruption that the task continues on the agent.
    pub(crate) fn with_task_note(self) -> Self {
        if self.code != INTERRUPTED {
            return self;
        }
        let message = format!("{}; the task was not canceled", self.message);
        Self { message, ..self }
    }

    /// Sets the hint. A later one replaces it: it knows more of the situation.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Whether a server answered, but not with a card.
    pub(crate) fn is_card_not_found(&self) -> bool {
        self.code == CARD_NOT_FOUND
    }

    /// Whether the reader of stdout has closed it.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.exit == EXIT_BROKEN_PIPE
    }

    /// Converts an error of a call over `binding`. `has_credential`: whether the call carried a credential.
    pub(crate) fn from_error(error: &Error, binding: Binding, has_credential: bool) -> Self {
        if let Some(cause) = HttpClient::connect_error(error) {
            return Self::from_connect_error(error, cause);
        }
        let message = error.message().to_owned();
        let converted = match error.kind() {
            ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
                Self::from_auth_error(error, has_credential)
            }
            ErrorKind::RateLimited | ErrorKind::Unavailable => {
                Self::internal(message).hint(retry_hint(error))
            }
            ErrorKind::TaskNotFound => Self::protocol(ErrorKind::TaskNotFound, message)
                .hint("check the id, or see the requests with --debug"),
            kind => match protocol_name(kind) {
                Some(name) => Self::new(name, 1, message),
                None => Self::internal(message),
            },
        };
        Self {
            a2a_code: Some(wire_code(binding, error.kind())),
            ..converted
        }
    }

    /// Converts a refusal: a missing scope, a refused credential, or no credential.
    fn from_auth_error(error: &Error, has_credential: bool) -> Self {
        let message = error.message();
        if error.kind() == ErrorKind::PermissionDenied
            && let Some(scope) = metadata(error, "scope")
        {
            return Self::auth_failed(format!("{message} (the scope {scope} is missing)")).hint(
                format!(
                    "use a credential with the scope {scope}, or see the requests with --debug"
                ),
            );
        }
        if has_credential {
            return Self::auth_failed(format!("the agent refuses the credential: {message}"))
                .hint("check the credential and its scopes, or see the requests with --debug");
        }
        Self::credentials_missing(message).hint(
            "give a credential: --bearer or --api-key; A2ACLI_BEARER or A2ACLI_API_KEY is safer",
        )
    }

    /// Converts a failed or lost connection.
    fn from_connect_error(error: &Error, cause: ConnectError) -> Self {
        let message = error.message();
        let root_cause =
            std::iter::successors(std::error::Error::source(error), |cause| cause.source()).last();
        let error = match root_cause {
            // The message contains the reason.
            _ if cause.is_untrusted_certificate() => Self::unreachable(message),
            Some(root_cause) => Self::unreachable(format!("{message}: {root_cause}")),
            None => Self::unreachable(message),
        };
        error.hint(connect_hint(cause))
    }
}

/// The next step after a failed connection.
fn connect_hint(cause: ConnectError) -> &'static str {
    match cause {
        ConnectError::CaCertificate => {
            "the server presents the certificate of an authority; it needs one that the authority has signed"
        }
        ConnectError::CertificateName => {
            "the certificate is for another name; call the agent by the name in the certificate"
        }
        ConnectError::UntrustedCertificate => "if you trust its authority: --ca <file>",
        ConnectError::ClientCertificateRequired => {
            "the server requires a client certificate: --cert <file> --key <file>"
        }
        ConnectError::NotTls => "the server does not use TLS on this port; use http://",
        ConnectError::NotHttp => "the server may use TLS on this port; use https://",
        ConnectError::Other => HINT_UNREACHABLE,
    }
}

/// The time to retry after, and for a task quota how to free it.
fn retry_hint(error: &Error) -> String {
    let retry = match error.retry_after() {
        Some(after) => format!("try again in {} s", after.as_secs_f64().ceil()),
        None => "try again later".to_owned(),
    };
    if metadata(error, "quota").is_some() {
        format!(
            "list the tasks with `attache task list`, end some with `attache task cancel`, or {retry}"
        )
    } else {
        retry
    }
}

/// A detail of the error, unless it is empty.
fn metadata<'a>(error: &'a Error, key: &str) -> Option<&'a str> {
    error
        .metadata()
        .find(|(name, value)| *name == key && !value.is_empty())
        .map(|(_, value)| value)
}

/// The A2A name of an error; `None` if A2A has no name for it.
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

/// The code of an error on a binding.
fn wire_code(binding: Binding, kind: ErrorKind) -> Value {
    match binding {
        Binding::JsonRpc => jsonrpc_code(kind).into(),
        Binding::HttpJson => http_status(kind, Version::V1).into(),
        Binding::Grpc => grpc_code(kind, Version::V1).as_str().into(),
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<io::Error> for CliError {
    /// Converts an error of writing a result.
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
        let over_quota = limited().with_detail("quota", "open_tasks");
        let hint = |error| {
            CliError::from_error(&error, Binding::HttpJson, true)
                .hint
                .unwrap_or_default()
        };
        assert_eq!(hint(limited()), "try again in 3 s");
        assert!(hint(over_quota).contains("attache task cancel"));
    }

    #[test]
    fn auth_009_a_required_client_certificate_has_its_own_hint() {
        let hint = connect_hint(ConnectError::ClientCertificateRequired);
        assert!(hint.contains("--cert <file> --key <file>"), "{hint}");
        assert_eq!(connect_hint(ConnectError::Other), HINT_UNREACHABLE);
    }

    #[test]
    fn exit_001_a_refused_credential_differs_from_a_missing_one() {
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
