//! Error deserialization from the bodies of any version (06 §5).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::lenient::parse_state;
use super::write::BadRequest;
use super::{DOMAIN, jsonrpc_code, reason};
use crate::model::{Error, ErrorKind, Json, Object, Violation};

/// Reads the error object of a JSON-RPC response. The code determines the kind.
#[must_use]
pub fn read_jsonrpc_error(text: &str) -> Error {
    #[derive(Deserialize)]
    struct Body<'a> {
        code: Option<i64>,
        message: Option<Cow<'a, str>>,
        #[serde(borrow)]
        data: Option<&'a RawValue>,
    }
    let Ok(body) = serde_json::from_str::<Body<'_>>(text) else {
        return Error::new(ErrorKind::InvalidAgentResponse)
            .with_message("Invalid agent response: unreadable error object");
    };
    let details = body.data.map(PeerErrorDetails::new).unwrap_or_default();
    let code = body
        .code
        .and_then(|code| i32::try_from(code).ok())
        .unwrap_or(-32603);
    let kind = match (code, details.kind()) {
        // Server-defined codes: the reason may be more specific.
        (-32099..=-32010 | -32000, Some(kind)) => kind,
        _ => kind_from_code(code),
    };
    details.into_error(kind, body.message)
}

fn kind_from_code(code: i32) -> ErrorKind {
    ErrorKind::ALL
        .into_iter()
        .find(|kind| jsonrpc_code(*kind) == code && code != -32000)
        .unwrap_or(ErrorKind::Other(code))
}

/// Reads the body of a REST error. The kind comes from the reason, else from the problem type, else
/// from the HTTP status.
#[must_use]
pub fn read_rest_error(status: u16, body: &str) -> Error {
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
    struct RestErrorBody<'a> {
        #[serde(borrow)]
        message: Option<Cow<'a, str>>,
        #[serde(borrow)]
        details: Option<&'a RawValue>,
    }
    let outer: Body<'_> = serde_json::from_str(body).unwrap_or_default();
    let inner: RestErrorBody<'_> = outer
        .error
        .and_then(|error| serde_json::from_str(error.get()).ok())
        .unwrap_or_default();
    let details = inner.details.map(PeerErrorDetails::new).unwrap_or_default();
    let problem = outer.problem.as_deref().and_then(kind_from_problem);
    let kind = details
        .kind()
        .or(problem)
        .unwrap_or_else(|| kind_from_status(status));
    details.into_error(
        kind,
        inner
            .message
            .or(outer.message)
            .or(outer.detail)
            .or(outer.title),
    )
}

/// Converts a problem type. Drafts of 1.0 named errors by a URI whose last segment is the name in
/// kebab case.
fn kind_from_problem(uri: &str) -> Option<ErrorKind> {
    let name = uri
        .rsplit('/')
        .next()?
        .to_ascii_uppercase()
        .replace('-', "_");
    kind_from_reason(&name).or_else(|| kind_from_reason(name.strip_suffix("_ERROR")?))
}

fn kind_from_reason(name: &str) -> Option<ErrorKind> {
    match name {
        // Names of other SDKs.
        "UNAUTHORIZED" => Some(ErrorKind::PermissionDenied),
        "JSON_PARSE" => Some(ErrorKind::Parse),
        _ => ErrorKind::ALL
            .into_iter()
            .find(|kind| reason(*kind) == name),
    }
}

fn kind_from_status(status: u16) -> ErrorKind {
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

/// Details of an error: typed details of 1.0, or the data object of 0.3.
#[derive(Default)]
pub(crate) struct PeerErrorDetails {
    pub(crate) reason: Option<String>,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) violations: Vec<Violation>,
}

impl PeerErrorDetails {
    fn new(data: &RawValue) -> Self {
        let mut details = Self::default();
        match serde_json::from_str::<Vec<&RawValue>>(data.get()) {
            Ok(list) => list
                .into_iter()
                .for_each(|detail| details.read_typed(detail.get())),
            Err(_) => details.read_object(data.get()),
        }
        details
    }

    fn read_typed(&mut self, text: &str) {
        #[derive(Deserialize)]
        struct TypedDetail<'a> {
            #[serde(rename = "@type", borrow)]
            type_url: Cow<'a, str>,
            #[serde(borrow)]
            reason: Option<Cow<'a, str>>,
            #[serde(borrow)]
            domain: Option<Cow<'a, str>>,
            metadata: Option<Object>,
        }
        let Ok(typed) = serde_json::from_str::<TypedDetail<'_>>(text) else {
            return;
        };
        if typed.type_url.ends_with("google.rpc.ErrorInfo") {
            // Proxies may add reasons in their own domain.
            if typed.domain.as_deref() != Some(DOMAIN) {
                return;
            }
            self.reason = typed.reason.map(Cow::into_owned);
            self.metadata = typed
                .metadata
                .iter()
                .flat_map(Object::iter)
                .map(normalize_detail)
                .collect();
        } else if typed.type_url.ends_with("google.rpc.BadRequest") {
            let read = serde_json::from_str::<BadRequest<'_>>(text);
            let violations = read.into_iter().flat_map(|bad| bad.field_violations);
            self.violations = violations
                .map(|v| Violation::new(v.field, v.description.into_owned()))
                .collect();
        }
    }

    fn read_object(&mut self, text: &str) {
        if let Ok(object) = serde_json::from_str::<Object>(text) {
            self.metadata = object.iter().map(normalize_detail).collect();
        }
    }

    pub(crate) fn kind(&self) -> Option<ErrorKind> {
        kind_from_reason(self.reason.as_deref()?)
    }

    pub(crate) fn into_error(self, kind: ErrorKind, message: Option<Cow<'_, str>>) -> Error {
        let mut error = Error::new(kind);
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            error = error.with_message(message.into_owned());
        }
        for (key, value) in self.metadata {
            error = error.with_detail(key, value);
        }
        self.violations
            .into_iter()
            .fold(error, Error::with_violation)
    }
}

/// Converts a detail to text, and a state to its 1.0 name.
fn normalize_detail(detail: (String, Json)) -> (String, String) {
    let (key, value) = detail;
    let text = value
        .read::<String>()
        .unwrap_or_else(|_| value.get().to_owned());
    match (key.as_str(), parse_state(&text)) {
        ("state", Some(state)) => (key, state.as_str().to_owned()),
        _ => (key, text),
    }
}
