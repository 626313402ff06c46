//! The public error type: a kind and message for the caller, a source for the log.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Version;

/// Result with the public [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error. `wire/errors.rs` maps each kind to its code on every binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The body is not JSON.
    Parse,
    /// The body is JSON, but not a valid request.
    InvalidRequest,
    /// The body exceeds the size limit of the server.
    PayloadTooLarge,
    /// The request did not arrive within the time limit.
    RequestTimeout,
    /// The method or route does not exist.
    MethodNotFound,
    /// The route does not support this HTTP method.
    MethodNotAllowed,
    /// A parameter is missing or invalid.
    InvalidParams,
    /// Internal error; the cause is in the log.
    Internal,
    /// The task does not exist or is not visible to this caller.
    TaskNotFound,
    /// The task has ended or cannot be canceled.
    TaskNotCancelable,
    /// The agent does not support push notifications.
    PushNotificationNotSupported,
    /// The agent or the state of the task does not allow the operation.
    UnsupportedOperation,
    /// A media type inside the message is not accepted.
    ContentTypeNotSupported,
    /// The media type of the request itself is not accepted.
    UnsupportedMediaType,
    /// The agent violated the protocol.
    InvalidAgentResponse,
    /// The card declares an extended card, but none is configured.
    ExtendedAgentCardNotConfigured,
    /// The agent requires an extension that the request did not declare.
    ExtensionSupportRequired,
    /// The requested protocol version is not supported.
    VersionNotSupported,
    /// The request has no valid credentials.
    Unauthenticated,
    /// The credentials are valid, but do not permit the operation.
    PermissionDenied,
    /// The rate limit is exceeded; the caller may retry later.
    RateLimited,
    /// The server cannot handle the request now; the caller may retry later.
    Unavailable,
    /// The caller closed the connection.
    Canceled,
    /// The deadline expired.
    DeadlineExceeded,
    /// Custom error code of a peer.
    Other(i32),
}

/// Error with two audiences: kind, message and details for the caller, the source for the log only.
///
/// Boxed to keep `Result` small.
pub struct Error(Box<ErrorData>);

struct ErrorData {
    kind: ErrorKind,
    message: Cow<'static, str>,
    metadata: BTreeMap<Cow<'static, str>, String>,
    violations: Vec<Violation>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Invalid field and the rule that it violates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    field: String,
    description: Cow<'static, str>,
}

impl Violation {
    /// Creates a violation. `field` is a JSON path such as `message.parts`; `description` completes
    /// the sentence "field …", such as "must not be empty".
    pub fn new(field: impl Into<String>, description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            field: field.into(),
            description: description.into(),
        }
    }

    /// Returns the JSON path of the field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the violated rule.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }
}

impl Error {
    /// Creates an error with the protocol's default message for the kind.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(ErrorData {
            kind,
            message: Cow::Borrowed(kind.message()),
            metadata: BTreeMap::new(),
            violations: Vec::new(),
            retry_after: None,
            source: None,
        }))
    }

    /// Creates an invalid-parameters error for one field; see [`Violation::new`].
    pub fn invalid(field: impl Into<String>, description: impl Into<Cow<'static, str>>) -> Self {
        Violation::new(field, description).into()
    }

    /// Creates an internal error. The caller reads "Internal error"; the log has `source`.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Internal).with_source(source)
    }

    /// Replaces the message that the caller reads.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Adds a key-value detail for the caller, such as `taskId`.
    #[must_use]
    pub fn with_detail(
        mut self,
        key: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Self {
        self.0.metadata.insert(key.into(), value.into());
        self
    }

    /// Adds an invalid field.
    #[must_use]
    pub fn with_violation(mut self, violation: Violation) -> Self {
        self.0.violations.push(violation);
        self
    }

    /// Sets the time after which the caller may retry.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Sets the cause. It is logged and never sent to the caller.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message for the caller.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the key-value details for the caller.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0
            .metadata
            .iter()
            .map(|(key, value)| (&**key, &**value))
    }

    /// Returns the invalid fields.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// Returns the time after which the caller may retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

impl From<Violation> for Error {
    /// Includes the field in the message as well, because some clients do not show typed details.
    fn from(violation: Violation) -> Self {
        let kind = ErrorKind::InvalidParams;
        let message = match violation.field.as_str() {
            "" => format!("{}: {}", kind.message(), violation.description),
            field => format!("{}: {field} {}", kind.message(), violation.description),
        };
        Self::new(kind)
            .with_message(message)
            .with_violation(violation)
    }
}

impl PartialEq for Error {
    /// Compares everything that the caller can see; ignores the source.
    fn eq(&self, other: &Self) -> bool {
        (
            self.0.kind,
            &self.0.message,
            &self.0.metadata,
            &self.0.violations,
            self.0.retry_after,
        ) == (
            other.0.kind,
            &other.0.message,
            &other.0.metadata,
            &other.0.violations,
            other.0.retry_after,
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("metadata", &self.0.metadata)
            .field("violations", &self.0.violations)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl ErrorKind {
    /// Returns the error for a request of the extended card when the card does not declare one. The
    /// kind differs by version.
    #[must_use]
    pub fn undeclared_extended_card(version: Version) -> Self {
        match version {
            Version::V1 => Self::UnsupportedOperation,
            Version::V03 => Self::ExtendedAgentCardNotConfigured,
        }
    }

    /// Every kind except `Other`.
    pub const ALL: [Self; 24] = [
        Self::Parse,
        Self::InvalidRequest,
        Self::PayloadTooLarge,
        Self::RequestTimeout,
        Self::MethodNotFound,
        Self::MethodNotAllowed,
        Self::InvalidParams,
        Self::Internal,
        Self::TaskNotFound,
        Self::TaskNotCancelable,
        Self::PushNotificationNotSupported,
        Self::UnsupportedOperation,
        Self::ContentTypeNotSupported,
        Self::UnsupportedMediaType,
        Self::InvalidAgentResponse,
        Self::ExtendedAgentCardNotConfigured,
        Self::ExtensionSupportRequired,
        Self::VersionNotSupported,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::RateLimited,
        Self::Unavailable,
        Self::Canceled,
        Self::DeadlineExceeded,
    ];

    /// Returns the protocol's default message.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Parse => "Invalid JSON payload",
            Self::InvalidRequest => "Request payload validation error",
            Self::PayloadTooLarge => "Payload too large",
            Self::RequestTimeout => "Request did not arrive in time",
            Self::MethodNotFound => "Method not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::InvalidParams => "Invalid parameters",
            Self::Internal => "Internal error",
            Self::TaskNotFound => "Task not found",
            Self::TaskNotCancelable => "Task cannot be canceled",
            Self::PushNotificationNotSupported => "Push Notification is not supported",
            Self::UnsupportedOperation => "This operation is not supported",
            Self::ContentTypeNotSupported | Self::UnsupportedMediaType => {
                "Incompatible content types"
            }
            Self::InvalidAgentResponse => "Invalid agent response",
            Self::ExtendedAgentCardNotConfigured => "Extended Agent Card is not configured",
            Self::ExtensionSupportRequired => "Extension support required",
            Self::VersionNotSupported => "Version not supported",
            Self::Unauthenticated => "Authentication required",
            Self::PermissionDenied => "Permission denied",
            Self::RateLimited => "Too many requests",
            Self::Unavailable => "Service unavailable",
            Self::Canceled => "Request canceled",
            Self::DeadlineExceeded => "Deadline exceeded",
            Self::Other(_) => "Error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_field_and_hides_the_source() {
        let error = Error::invalid("message.parts", "must contain at least one element");
        assert_eq!(
            error.to_string(),
            "Invalid parameters: message.parts must contain at least one element"
        );
        let error = Error::internal("password=hunter2 in /etc/secret");
        assert_eq!(error.to_string(), "Internal error");
        assert!(
            std::error::Error::source(&error)
                .unwrap()
                .to_string()
                .contains("hunter2")
        );
    }
}
