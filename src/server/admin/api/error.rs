//! Errors of the admin API, with their JSON form.

use http::header::{ALLOW, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::json;

use crate::auth::OperatorRole;
use crate::model::{Error, ErrorKind};
use crate::server::reply::{self, Reply};

/// Error of the admin API. Boxed: results stay small.
#[derive(Debug)]
pub(in crate::server::admin) struct ApiError(Box<ErrorFields>);

#[derive(Debug)]
struct ErrorFields {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    field: Option<String>,
    error_id: Option<String>,
    retry_after: Option<u64>,
    allow: Option<&'static str>,
}

/// Result of a handler.
pub(in crate::server::admin) type ApiResult<T = Reply> = Result<T, ApiError>;

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorFields {
            status,
            code,
            message: message.into(),
            hint: None,
            field: None,
            error_id: None,
            retry_after: None,
            allow: None,
        }))
    }

    /// A parameter is invalid.
    pub(in crate::server::admin) fn parameter(field: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_parameter", message).with_field(field)
    }

    /// The body is invalid.
    pub(in crate::server::admin) fn body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_body", message)
    }

    /// The request has no valid credential.
    pub(in crate::server::admin) fn unauthenticated() -> Self {
        let message = "a session or an operator key is required";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", message).with_hint(
            "sign in at /console/, or send `Authorization: Bearer <KEY>` with a key of `attache keys add <NAME> --admin`",
        )
    }

    /// The one-time link was used or is too old.
    pub(in crate::server::admin) fn invalid_link() -> Self {
        let message = "this link was used or is older than 60 s";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_link", message)
            .with_hint("create another: attache console")
    }

    /// The key is no operator key.
    pub(in crate::server::admin) fn invalid_key() -> Self {
        let message = "this is no operator key of this server";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_key", message)
            .with_hint("create one: attache keys add <NAME> --admin")
    }

    /// Too many wrong keys or links came from this address.
    pub(in crate::server::admin) fn locked_out(error: &Error) -> Self {
        let mut refused = Self::new(StatusCode::TOO_MANY_REQUESTS, "locked_out", error.message());
        refused.0.retry_after = Some(error.retry_after().map_or(60, reply::ceil_seconds));
        refused
    }

    /// A bounded resource is used up.
    pub(in crate::server::admin) fn too_many(message: impl Into<String>) -> Self {
        let mut refused = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message);
        refused.0.retry_after = Some(10);
        refused
    }

    /// The request comes from another site.
    pub(in crate::server::admin) fn foreign(message: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden_origin", message)
            .with_hint("use the address of the console; behind a proxy set console.url")
    }

    /// The role of the operator does not suffice.
    pub(in crate::server::admin) fn role(required: &str, role: OperatorRole) -> Self {
        let message = format!("this needs the role {required}; yours is {role}");
        Self::new(StatusCode::FORBIDDEN, "forbidden_role", message)
    }

    /// Writes are disabled.
    pub(in crate::server::admin) fn read_only() -> Self {
        let message = "this server refuses changes (console.read_only = true)";
        Self::new(StatusCode::FORBIDDEN, "read_only", message)
    }

    /// There is no such object, or the operator may not see it.
    pub(in crate::server::admin) fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", what)
    }

    /// The path has no such method.
    pub(in crate::server::admin) fn method(allowed: &[&Method]) -> Self {
        let names: Vec<_> = allowed.iter().map(|method| method.as_str()).collect();
        let message = format!("use {}", names.join(" or "));
        let mut refused = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            message,
        );
        refused.0.allow = Some(match names.as_slice() {
            ["GET"] => "GET",
            ["POST"] => "POST",
            ["GET", "DELETE"] => "GET, DELETE",
            _ => "GET, POST, DELETE",
        });
        refused
    }

    /// The body is larger than allowed.
    pub(in crate::server::admin) fn too_large(limit: usize) -> Self {
        let message = format!("the body has more than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// The body is not JSON (S79).
    pub(in crate::server::admin) fn media_type() -> Self {
        let message = "the body must be JSON";
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            message,
        )
        .with_hint("send `Content-Type: application/json`")
    }

    /// The request is valid, and the object does not allow it.
    pub(in crate::server::admin) fn not_possible(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "not_possible", message)
    }

    /// The server failed. The cause is in the log, under the id of the reply.
    pub(in crate::server::admin) fn internal(
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::from(Error::internal(cause))
    }

    /// The handler did not end in time.
    pub(in crate::server::admin) fn timed_out() -> Self {
        let message = "the request did not end in time";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            .with_hint("narrow the filters, or try again")
    }

    fn with_hint(mut self, hint: &str) -> Self {
        self.0.hint = Some(hint.to_owned());
        self
    }

    fn with_field(mut self, field: &str) -> Self {
        self.0.field = Some(field.to_owned());
        self
    }

    /// Returns the code, for the audit log.
    pub(in crate::server::admin) fn code(&self) -> &'static str {
        self.0.code
    }

    /// Whether the server refused the request, rather than failed.
    pub(in crate::server::admin) fn is_refusal(&self) -> bool {
        self.0.status.is_client_error()
    }

    /// Returns the reply.
    pub(in crate::server::admin) fn into_reply(self) -> Reply {
        let mut error = json!({"code": self.0.code, "message": self.0.message});
        for (name, value) in [
            ("hint", self.0.hint),
            ("field", self.0.field),
            ("errorId", self.0.error_id),
        ] {
            if let Some(value) = value {
                error[name] = value.into();
            }
        }
        let body = json!({"error": error});
        let mut reply = reply::json(self.0.status, body.to_string());
        let headers = reply.headers_mut();
        if let Some(seconds) = self.0.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(allow) = self.0.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        reply
    }
}

impl From<Error> for ApiError {
    /// Converts an error of the service. Causes go to the log.
    fn from(error: Error) -> Self {
        let error = reply::log_failure(error);
        let message = error.message().to_owned();
        let mut converted = match error.kind() {
            ErrorKind::InvalidParams => {
                Self::new(StatusCode::BAD_REQUEST, "invalid_parameter", message)
            }
            ErrorKind::TaskNotFound => Self::not_found(message),
            ErrorKind::TaskNotCancelable | ErrorKind::UnsupportedOperation => {
                Self::new(StatusCode::CONFLICT, "conflict", message)
            }
            ErrorKind::RateLimited => Self::too_many(message),
            ErrorKind::Unavailable => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            }
            ErrorKind::Internal => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            }
            _ => Self::not_possible(message),
        };
        let id = error.metadata().find(|(key, _)| *key == "errorId");
        converted.0.error_id = id.map(|(_, id)| id.to_owned());
        converted
    }
}

/// Returns a JSON reply.
///
/// # Errors
/// The value cannot be encoded.
pub(in crate::server::admin) fn json_reply(value: &impl Serialize) -> ApiResult {
    json_reply_with(StatusCode::OK, value)
}

/// Returns a JSON reply with a status.
///
/// # Errors
/// The value cannot be encoded.
pub(in crate::server::admin) fn json_reply_with(
    status: StatusCode,
    value: &impl Serialize,
) -> ApiResult {
    let body = serde_json::to_vec(value).map_err(ApiError::internal)?;
    Ok(reply::json(status, body))
}
