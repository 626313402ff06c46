//! Error codes of every binding, and the bodies that transport errors.
//!
//! Each table is one exhaustive `match` over [`ErrorKind`], so a new kind does not compile until
//! every binding maps it. The codes are those of 06 §1. Bodies are written in the version of the
//! request and read from any version.

mod read;
mod v03_terms;
mod write;

use crate::model::{ErrorKind, Version};
#[cfg(feature = "grpc")]
pub(crate) use read::PeerErrorDetails;
pub use read::{read_jsonrpc_error, read_rest_error};
pub(crate) use v03_terms::V03Terms;
pub use v03_terms::with_caller_path;
pub use write::{JsonRpcError, RestError};

/// Domain of the reasons in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "a2a-protocol.org";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// gRPC status codes that the server uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are gRPC's own")]
pub enum GrpcCode {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl GrpcCode {
    /// Returns the name used in REST error bodies.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// Returns the JSON-RPC error code.
#[must_use]
pub fn jsonrpc_code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Parse => -32700,
        ErrorKind::InvalidRequest | ErrorKind::PayloadTooLarge | ErrorKind::RequestTimeout => {
            -32600
        }
        ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed => -32601,
        ErrorKind::InvalidParams => -32602,
        ErrorKind::Internal => -32603,
        ErrorKind::TaskNotFound => -32001,
        ErrorKind::TaskNotCancelable => -32002,
        ErrorKind::PushNotificationNotSupported => -32003,
        ErrorKind::UnsupportedOperation => -32004,
        ErrorKind::ContentTypeNotSupported | ErrorKind::UnsupportedMediaType => -32005,
        ErrorKind::InvalidAgentResponse => -32006,
        ErrorKind::ExtendedAgentCardNotConfigured => -32007,
        ErrorKind::ExtensionSupportRequired => -32008,
        ErrorKind::VersionNotSupported => -32009,
        // A2A defines no codes for these. The HTTP status identifies them, and in a stream the
        // reason.
        ErrorKind::Unauthenticated => -31401,
        ErrorKind::PermissionDenied => -31403,
        ErrorKind::RateLimited
        | ErrorKind::Unavailable
        | ErrorKind::Canceled
        | ErrorKind::DeadlineExceeded => -32000,
        ErrorKind::Other(code) => code,
    }
}

/// Returns the HTTP status of a REST error.
#[must_use]
pub fn http_status(kind: ErrorKind, version: Version) -> u16 {
    let (v1, v03) = match kind {
        ErrorKind::Parse | ErrorKind::InvalidRequest => (400, 400),
        ErrorKind::PayloadTooLarge => (413, 413),
        ErrorKind::RequestTimeout => (408, 408),
        ErrorKind::MethodNotFound => (404, 404),
        ErrorKind::MethodNotAllowed => (405, 405),
        ErrorKind::InvalidParams => (400, 422),
        ErrorKind::Internal | ErrorKind::Other(_) => (500, 500),
        ErrorKind::TaskNotFound => (404, 404),
        ErrorKind::TaskNotCancelable => (400, 409),
        ErrorKind::PushNotificationNotSupported | ErrorKind::UnsupportedOperation => (400, 501),
        ErrorKind::ContentTypeNotSupported => (400, 415),
        ErrorKind::UnsupportedMediaType => (415, 415),
        ErrorKind::InvalidAgentResponse => (500, 502),
        ErrorKind::ExtendedAgentCardNotConfigured => (400, 404),
        ErrorKind::ExtensionSupportRequired | ErrorKind::VersionNotSupported => (400, 400),
        ErrorKind::Unauthenticated => (401, 401),
        ErrorKind::PermissionDenied => (403, 403),
        ErrorKind::RateLimited => (429, 429),
        ErrorKind::Unavailable => (503, 503),
        ErrorKind::Canceled => (499, 499),
        ErrorKind::DeadlineExceeded => (504, 504),
    };
    match version {
        Version::V1 => v1,
        Version::V03 => v03,
    }
}

/// Returns the gRPC status code.
#[must_use]
pub fn grpc_code(kind: ErrorKind, version: Version) -> GrpcCode {
    use GrpcCode as C;
    let (v1, v03) = match kind {
        ErrorKind::Parse => (C::InvalidArgument, C::Internal),
        ErrorKind::InvalidRequest | ErrorKind::InvalidParams => {
            (C::InvalidArgument, C::InvalidArgument)
        }
        ErrorKind::PayloadTooLarge => (C::ResourceExhausted, C::ResourceExhausted),
        ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed => (C::Unimplemented, C::NotFound),
        ErrorKind::Internal | ErrorKind::InvalidAgentResponse => (C::Internal, C::Internal),
        ErrorKind::TaskNotFound => (C::NotFound, C::NotFound),
        // The JS SDK of 0.3 expects this code; the Python SDK reads the name.
        ErrorKind::TaskNotCancelable => (C::FailedPrecondition, C::FailedPrecondition),
        ErrorKind::PushNotificationNotSupported | ErrorKind::UnsupportedOperation => {
            (C::FailedPrecondition, C::Unimplemented)
        }
        ErrorKind::ContentTypeNotSupported | ErrorKind::UnsupportedMediaType => {
            (C::InvalidArgument, C::Unimplemented)
        }
        ErrorKind::ExtendedAgentCardNotConfigured => (C::FailedPrecondition, C::Unknown),
        ErrorKind::ExtensionSupportRequired | ErrorKind::VersionNotSupported => {
            (C::FailedPrecondition, C::FailedPrecondition)
        }
        ErrorKind::Unauthenticated => (C::Unauthenticated, C::Unauthenticated),
        ErrorKind::PermissionDenied => (C::PermissionDenied, C::PermissionDenied),
        ErrorKind::RateLimited => (C::ResourceExhausted, C::ResourceExhausted),
        ErrorKind::Unavailable => (C::Unavailable, C::Unavailable),
        ErrorKind::Canceled => (C::Cancelled, C::Cancelled),
        ErrorKind::RequestTimeout | ErrorKind::DeadlineExceeded => {
            (C::DeadlineExceeded, C::DeadlineExceeded)
        }
        ErrorKind::Other(_) => (C::Unknown, C::Unknown),
    };
    match version {
        Version::V1 => v1,
        Version::V03 => v03,
    }
}

/// Returns the reason for `google.rpc.ErrorInfo`, identical on every binding.
#[must_use]
pub fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Parse => "PARSE_ERROR",
        ErrorKind::InvalidRequest | ErrorKind::PayloadTooLarge | ErrorKind::RequestTimeout => {
            "INVALID_REQUEST"
        }
        ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed => "METHOD_NOT_FOUND",
        ErrorKind::InvalidParams => "INVALID_PARAMS",
        ErrorKind::Internal => "INTERNAL_ERROR",
        ErrorKind::TaskNotFound => "TASK_NOT_FOUND",
        ErrorKind::TaskNotCancelable => "TASK_NOT_CANCELABLE",
        ErrorKind::PushNotificationNotSupported => "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ErrorKind::UnsupportedOperation => "UNSUPPORTED_OPERATION",
        ErrorKind::ContentTypeNotSupported | ErrorKind::UnsupportedMediaType => {
            "CONTENT_TYPE_NOT_SUPPORTED"
        }
        ErrorKind::InvalidAgentResponse => "INVALID_AGENT_RESPONSE",
        ErrorKind::ExtendedAgentCardNotConfigured => "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        ErrorKind::ExtensionSupportRequired => "EXTENSION_SUPPORT_REQUIRED",
        ErrorKind::VersionNotSupported => "VERSION_NOT_SUPPORTED",
        ErrorKind::Unauthenticated => "UNAUTHENTICATED",
        ErrorKind::PermissionDenied => "PERMISSION_DENIED",
        ErrorKind::RateLimited => "RATE_LIMITED",
        ErrorKind::Unavailable => "UNAVAILABLE",
        ErrorKind::Canceled => "CANCELED",
        ErrorKind::DeadlineExceeded => "DEADLINE_EXCEEDED",
        ErrorKind::Other(_) => "SERVER_ERROR",
    }
}

/// Returns the name of the error. 0.3 puts it before gRPC messages and into REST error bodies; logs
/// and the CLI show it.
#[must_use]
pub fn error_name(kind: ErrorKind, version: Version) -> &'static str {
    match kind {
        ErrorKind::Parse => "JSONParseError",
        ErrorKind::InvalidRequest | ErrorKind::PayloadTooLarge | ErrorKind::RequestTimeout => {
            "InvalidRequestError"
        }
        ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed => "MethodNotFoundError",
        ErrorKind::InvalidParams => "InvalidParamsError",
        ErrorKind::Internal => "InternalError",
        ErrorKind::TaskNotFound => "TaskNotFoundError",
        ErrorKind::TaskNotCancelable => "TaskNotCancelableError",
        ErrorKind::PushNotificationNotSupported => "PushNotificationNotSupportedError",
        ErrorKind::UnsupportedOperation => "UnsupportedOperationError",
        ErrorKind::ContentTypeNotSupported | ErrorKind::UnsupportedMediaType => {
            "ContentTypeNotSupportedError"
        }
        ErrorKind::InvalidAgentResponse => "InvalidAgentResponseError",
        ErrorKind::ExtendedAgentCardNotConfigured => match version {
            Version::V1 => "ExtendedAgentCardNotConfiguredError",
            Version::V03 => "AuthenticatedExtendedCardNotConfiguredError",
        },
        ErrorKind::ExtensionSupportRequired => "ExtensionSupportRequiredError",
        ErrorKind::VersionNotSupported => "VersionNotSupportedError",
        ErrorKind::Unauthenticated => "UnauthenticatedError",
        ErrorKind::PermissionDenied => "PermissionDeniedError",
        ErrorKind::RateLimited => "RateLimitedError",
        ErrorKind::Unavailable => "UnavailableError",
        ErrorKind::Canceled => "CanceledError",
        ErrorKind::DeadlineExceeded => "DeadlineExceededError",
        ErrorKind::Other(_) => "ServerError",
    }
}
