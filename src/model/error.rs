//! What went wrong, for the caller and for the log.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Version;

/// The result of anything that can fail towards a caller.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error a caller can get. What each one is on a binding stands in `wire/errors.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The body is not JSON.
    Parse,
    /// The body is JSON, but no request.
    InvalidRequest,
    /// The body is larger than the server takes.
    PayloadTooLarge,
    /// The request did not arrive in time.
    RequestTimeout,
    /// There is no such method or route.
    MethodNotFound,
    /// The route exists, but not for this HTTP method.
    MethodNotAllowed,
    /// A parameter is missing or wrong.
    InvalidParams,
    /// Our fault; the cause is in the log.
    Internal,
    /// No such task for this caller.
    TaskNotFound,
    /// The task has ended, or cannot be stopped.
    TaskNotCancelable,
    /// The agent does not push.
    PushNotificationNotSupported,
    /// The agent, or the state of the task, does not allow this.
    UnsupportedOperation,
    /// A media type inside the message is not accepted.
    ContentTypeNotSupported,
    /// The media type of the request itself is not accepted.
    UnsupportedMediaType,
    /// The agent broke the protocol.
    InvalidAgentResponse,
    /// The extended card is declared, but there is none.
    ExtendedAgentCardNotConfigured,
    /// The agent needs an extension that the request did not name.
    ExtensionSupportRequired,
    /// The version asked for is not served.
    VersionNotSupported,
    /// No valid credentials.
    Unauthenticated,
    /// Valid credentials, but not for this.
    PermissionDenied,
    /// Too many requests; try again later.
    RateLimited,
    /// Cannot serve now; try again later.
    Unavailable,
    /// The caller went away.
    Canceled,
    /// The time allowed ran out.
    DeadlineExceeded,
    /// A code that a peer defined for itself.
    Other(i32),
}

/// An error: what the caller reads, and apart from it what only the log may know.
pub struct Error(Box<ErrorData>);

struct ErrorData {
    kind: ErrorKind,
    message: Cow<'static, str>,
    metadata: BTreeMap<Cow<'static, str>, String>,
    violations: Vec<Violation>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A field that breaks a rule, and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    field: String,
    description: Cow<'static, str>,
}

impl Violation {
    /// Names the field by its JSON path, such as `message.parts`, and says what it must be.
    pub fn new(field: impl Into<String>, description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            field: field.into(),
            description: description.into(),
        }
    }

    /// The field by its JSON path.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What the field must be.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }
}

impl Error {
    /// An error of this kind with the protocol's own words.
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

    /// Invalid parameters: the field, and what it must be.
    pub fn invalid(field: impl Into<String>, description: impl Into<Cow<'static, str>>) -> Self {
        Violation::new(field, description).into()
    }

    /// Our fault: the caller reads "Internal error", the log has the cause.
    pub fn internal(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Internal).with_source(source)
    }

    /// Says it in other words, which the caller will read.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Adds a detail that the caller will read, such as `taskId`.
    #[must_use]
    pub fn with_detail(
        mut self,
        key: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Self {
        self.0.metadata.insert(key.into(), value.into());
        self
    }

    /// Adds a field that is at fault.
    #[must_use]
    pub fn with_violation(mut self, violation: Violation) -> Self {
        self.0.violations.push(violation);
        self
    }

    /// Says when trying again makes sense.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Keeps the cause, for the log alone.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What the caller reads.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Details for the caller, by name.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0
            .metadata
            .iter()
            .map(|(key, value)| (&**key, &**value))
    }

    /// The fields at fault.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// When to try again, if that makes sense.
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
    /// Not every client shows the typed details, so the message names the field as well.
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
    /// Equal to a caller: sources do not count.
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
    /// What asking for an extended card is where the agent declares none.
    #[must_use]
    pub fn undeclared_extended_card(version: Version) -> Self {
        match version {
            Version::V1 => Self::UnsupportedOperation,
            Version::V03 => Self::ExtendedAgentCardNotConfigured,
        }
    }

    /// Every kind but the peers' own.
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

    /// The protocol's own words for it.
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
    fn the_caller_reads_the_field_and_never_the_source() {
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
