//! What each error is on each binding, and the bodies that carry it: written by version, read from all of them.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize as DeriveSerialize};
use serde_json::value::RawValue;

use super::spelling::{state_from, state_v03};
use crate::model::{Error, ErrorKind, Json, Object, Version, Violation};

/// The domain of every reason we give.
pub const DOMAIN: &str = "a2a-protocol.org";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// The status codes of gRPC that we use.
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
    /// The name that REST bodies carry.
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

/// The code in a JSON-RPC error.
#[must_use]
pub fn jsonrpc_code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Parse => -32700,
        ErrorKind::InvalidRequest | ErrorKind::PayloadTooLarge | ErrorKind::RequestTimeout => -32600,
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
        // A2A has no code for these; they travel with an HTTP status, and in a stream with their reason.
        ErrorKind::Unauthenticated => -31401,
        ErrorKind::PermissionDenied => -31403,
        ErrorKind::RateLimited
        | ErrorKind::Unavailable
        | ErrorKind::Canceled
        | ErrorKind::DeadlineExceeded => -32000,
        ErrorKind::Other(code) => code,
    }
}

/// The HTTP status of a REST error.
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

/// The status code of a gRPC error.
#[must_use]
pub fn grpc_code(kind: ErrorKind, version: Version) -> GrpcCode {
    use GrpcCode as C;
    let (v1, v03) = match kind {
        ErrorKind::Parse => (C::InvalidArgument, C::Internal),
        ErrorKind::InvalidRequest | ErrorKind::InvalidParams => (C::InvalidArgument, C::InvalidArgument),
        ErrorKind::PayloadTooLarge => (C::ResourceExhausted, C::ResourceExhausted),
        ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed => (C::Unimplemented, C::NotFound),
        ErrorKind::Internal | ErrorKind::InvalidAgentResponse => (C::Internal, C::Internal),
        ErrorKind::TaskNotFound => (C::NotFound, C::NotFound),
        ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation => (C::FailedPrecondition, C::Unimplemented),
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
        ErrorKind::RequestTimeout | ErrorKind::DeadlineExceeded => (C::DeadlineExceeded, C::DeadlineExceeded),
        ErrorKind::Other(_) => (C::Unknown, C::Unknown),
    };
    match version {
        Version::V1 => v1,
        Version::V03 => v03,
    }
}

/// The reason that typed details give, the same on every binding.
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
        ErrorKind::ContentTypeNotSupported | ErrorKind::UnsupportedMediaType => "CONTENT_TYPE_NOT_SUPPORTED",
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

/// The name of the error: 0.3 has it before its gRPC messages and in the body of its REST errors, and people know it by that.
#[must_use]
pub fn name(kind: ErrorKind, version: Version) -> &'static str {
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

/// What the caller reads: 0.3 has its own name for one error.
pub(crate) fn message(error: &Error, version: Version) -> &str {
    let default = ErrorKind::ExtendedAgentCardNotConfigured;
    match version {
        Version::V03 if error.kind() == default && error.message() == default.message() => {
            "Authenticated Extended Card is not configured"
        }
        Version::V03 | Version::V1 => error.message(),
    }
}

/// The error object of a JSON-RPC response.
pub struct JsonRpcError<'a>(pub &'a Error, pub Version);

impl Serialize for JsonRpcError<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(error, version) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &jsonrpc_code(error.kind()))?;
        map.serialize_entry("message", message(error, version))?;
        match version {
            Version::V1 => map.serialize_entry("data", &Details(error))?,
            Version::V03 => {
                if let Some(data) = data_v03(error) {
                    map.serialize_entry("data", &data)?;
                }
            }
        }
        map.end()
    }
}

/// 0.3 has no typed details: a small object where it says more than the task the caller named itself.
fn data_v03(error: &Error) -> Option<Object> {
    let named_it = !matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable);
    if error.metadata().all(|(key, _)| key == "taskId" && named_it) {
        return None;
    }
    Some(
        error
            .metadata()
            .map(|(key, value)| match (key, state_from(value)) {
                ("state", Some(state)) => (key, serde_json::Value::from(state_v03(state))),
                _ => (key, serde_json::Value::from(value)),
            })
            .collect(),
    )
}

/// The body of a REST error.
pub struct RestError<'a>(pub &'a Error, pub Version);

impl Serialize for RestError<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(error, version) = *self;
        let mut map = serializer.serialize_map(None)?;
        if version == Version::V03 {
            // Old clients look for the first; some for the second; a2a-sdk 1.x, where it speaks 0.3, for the third.
            map.serialize_entry("message", message(error, version))?;
            map.serialize_entry("code", &jsonrpc_code(error.kind()))?;
            map.serialize_entry("type", name(error.kind(), Version::V03))?;
        }
        let body = RestStatus {
            code: http_status(error.kind(), version),
            status: grpc_code(error.kind(), Version::V1).as_str(),
            message: message(error, version),
            details: Details(error),
        };
        map.serialize_entry("error", &body)?;
        map.end()
    }
}

#[derive(DeriveSerialize)]
struct RestStatus<'a> {
    code: u16,
    status: &'static str,
    message: &'a str,
    details: Details<'a>,
}

/// Typed details: the reason always, and the fields at fault.
struct Details<'a>(&'a Error);

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&Info(self.0))?;
        if !self.0.violations().is_empty() {
            let field_violations = self.0.violations().iter();
            seq.serialize_element(&BadRequest {
                type_url: BAD_REQUEST.into(),
                field_violations: field_violations
                    .map(|v| FieldViolation { field: v.field().into(), description: v.description().into() })
                    .collect(),
            })?;
        }
        seq.end()
    }
}

struct Info<'a>(&'a Error);

impl Serialize for Info<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("@type", ERROR_INFO)?;
        map.serialize_entry("reason", reason(self.0.kind()))?;
        map.serialize_entry("domain", DOMAIN)?;
        if self.0.metadata().len() > 0 {
            map.serialize_entry(
                "metadata",
                &self.0.metadata().collect::<std::collections::BTreeMap<_, _>>(),
            )?;
        }
        map.end()
    }
}

#[derive(DeriveSerialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BadRequest<'a> {
    // Some printers escape the slashes in it, so that it cannot always be borrowed.
    #[serde(rename = "@type", borrow, default)]
    type_url: Cow<'a, str>,
    #[serde(borrow, default)]
    field_violations: Vec<FieldViolation<'a>>,
}

#[derive(DeriveSerialize, Deserialize)]
struct FieldViolation<'a> {
    #[serde(borrow, default)]
    field: Cow<'a, str>,
    #[serde(borrow, default)]
    description: Cow<'a, str>,
}

/// Reads the error object of a JSON-RPC response, as any peer may send it. The code decides.
#[must_use]
pub fn read_jsonrpc(text: &str) -> Error {
    #[derive(Deserialize)]
    struct Body<'a> {
        code: Option<i64>,
        message: Option<Cow<'a, str>>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    }
    let Ok(body) = serde_json::from_str::<Body<'_>>(text) else {
        return Error::new(ErrorKind::InvalidAgentResponse)
            .with_message("the peer sent an error we cannot read");
    };
    let details = body.data.map(ReadDetails::new).unwrap_or_default();
    let code = body.code.and_then(|code| i32::try_from(code).ok()).unwrap_or(-32603);
    let kind = match (code, details.kind()) {
        // Server-defined: the reason may say more than the number.
        (-32099..=-32010 | -32000, Some(kind)) => kind,
        _ => kind_of_code(code),
    };
    details.into_error(kind, body.message)
}

fn kind_of_code(code: i32) -> ErrorKind {
    ErrorKind::ALL
        .into_iter()
        .find(|kind| jsonrpc_code(*kind) == code && code != -32000)
        .unwrap_or(ErrorKind::Other(code))
}

/// Reads the body of a REST error: the reason decides, then the kind of problem, then the HTTP status.
#[must_use]
pub fn read_rest(status: u16, body: &str) -> Error {
    #[derive(Deserialize, Default)]
    struct Body<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
        #[serde(borrow)]
        message: Option<Cow<'a, str>>,
        #[serde(borrow)]
        detail: Option<Cow<'a, str>>,
        #[serde(borrow)]
        title: Option<Cow<'a, str>>,
        #[serde(rename = "type", borrow)]
        problem: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize, Default)]
    struct Inner<'a> {
        #[serde(borrow)]
        message: Option<Cow<'a, str>>,
        #[serde(borrow)]
        details: Option<&'a RawValue>,
    }
    let outer: Body<'_> = serde_json::from_str(body).unwrap_or_default();
    let inner: Inner<'_> =
        outer.error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or_default();
    let details = inner.details.map(ReadDetails::new).unwrap_or_default();
    let problem = outer.problem.as_deref().and_then(kind_of_problem);
    let kind = details.kind().or(problem).unwrap_or_else(|| kind_of_status(status));
    details.into_error(kind, inner.message.or(outer.message).or(outer.detail).or(outer.title))
}

/// 1.0 drafts named errors by a URI whose last piece is the name in kebab case.
fn kind_of_problem(uri: &str) -> Option<ErrorKind> {
    let name = uri.rsplit('/').next()?.to_ascii_uppercase().replace('-', "_");
    kind_of_reason(&name).or_else(|| kind_of_reason(name.strip_suffix("_ERROR")?))
}

fn kind_of_reason(name: &str) -> Option<ErrorKind> {
    match name {
        // What other SDKs call it.
        "UNAUTHORIZED" => Some(ErrorKind::PermissionDenied),
        "JSON_PARSE" => Some(ErrorKind::Parse),
        _ => ErrorKind::ALL.into_iter().find(|kind| reason(*kind) == name),
    }
}

fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        404 => ErrorKind::TaskNotFound,
        400 | 422 => ErrorKind::InvalidParams,
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::PermissionDenied,
        405 => ErrorKind::MethodNotAllowed,
        409 => ErrorKind::TaskNotCancelable,
        413 => ErrorKind::PayloadTooLarge,
        415 => ErrorKind::ContentTypeNotSupported,
        429 => ErrorKind::RateLimited,
        501 => ErrorKind::UnsupportedOperation,
        502 => ErrorKind::InvalidAgentResponse,
        503 => ErrorKind::Unavailable,
        504 => ErrorKind::DeadlineExceeded,
        _ => ErrorKind::Internal,
    }
}

/// What typed details, or the small object of 0.3, say of an error.
#[derive(Default)]
pub(crate) struct ReadDetails {
    pub(crate) reason: Option<String>,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) violations: Vec<Violation>,
}

impl ReadDetails {
    fn new(data: &RawValue) -> Self {
        let mut details = Self::default();
        match serde_json::from_str::<Vec<&RawValue>>(data.get()) {
            Ok(list) => list.into_iter().for_each(|detail| details.read_typed(detail.get())),
            Err(_) => details.read_object(data.get()),
        }
        details
    }

    fn read_typed(&mut self, text: &str) {
        #[derive(Deserialize)]
        struct Typed<'a> {
            #[serde(rename = "@type", borrow)]
            type_url: Cow<'a, str>,
            #[serde(borrow)]
            reason: Option<Cow<'a, str>>,
            #[serde(borrow)]
            domain: Option<Cow<'a, str>>,
            metadata: Option<Object>,
        }
        let Ok(typed) = serde_json::from_str::<Typed<'_>>(text) else { return };
        if typed.type_url.ends_with("google.rpc.ErrorInfo") {
            // What lies between may add reasons of its own.
            if typed.domain.as_deref() != Some(DOMAIN) {
                return;
            }
            self.reason = typed.reason.map(Cow::into_owned);
            self.metadata = typed.metadata.iter().flat_map(Object::iter).map(as_detail).collect();
        } else if typed.type_url.ends_with("google.rpc.BadRequest") {
            let read = serde_json::from_str::<BadRequest<'_>>(text);
            let violations = read.into_iter().flat_map(|bad| bad.field_violations);
            self.violations =
                violations.map(|v| Violation::new(v.field, v.description.into_owned())).collect();
        }
    }

    fn read_object(&mut self, text: &str) {
        if let Ok(object) = serde_json::from_str::<Object>(text) {
            self.metadata = object.iter().map(as_detail).collect();
        }
    }

    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        kind_of_reason(self.reason.as_deref()?)
    }

    pub(crate) fn into_error(self, kind: ErrorKind, message: Option<Cow<'_, str>>) -> Error {
        let mut error = Error::new(kind);
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            error = error.with_message(message.into_owned());
        }
        for (key, value) in self.metadata {
            error = error.with(key, value);
        }
        self.violations.into_iter().fold(error, Error::with_violation)
    }
}

/// A detail as text; a state in 1.0's spelling, whatever the peer's.
fn as_detail((key, value): (String, Json)) -> (String, String) {
    let text = value.read::<String>().unwrap_or_else(|_| value.get().to_owned());
    match (key.as_str(), state_from(&text)) {
        ("state", Some(state)) => (key, state.as_str().to_owned()),
        _ => (key, text),
    }
}
