//! JSON-RPC 2.0 envelope, reading and writing (01 §9). Params and results stay text until the
//! method is known.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::{JsonRpcError, read_jsonrpc_error, read_rest_error};
use super::json::{check_depth, read};
use super::method::method_name;
use super::sse::Decoder;
use crate::model::{Error, ErrorKind, Json, Object, Operation, Version, Violation};

/// Maximum size of a request id in JSON. Every event of a stream repeats the id.
pub const MAX_ID_BYTES: usize = 256;

/// Request id as JSON text of at most [`MAX_ID_BYTES`]: a string, an integer, or `null`. Returned
/// unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonRpcId<'a>(Cow<'a, str>);

impl JsonRpcId<'_> {
    /// `null`: the request has no id or an unreadable one.
    pub const NULL: JsonRpcId<'static> = JsonRpcId(Cow::Borrowed("null"));

    /// Returns the id as JSON.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Returns an owned copy, for a stream that outlives the request.
    #[must_use]
    pub fn into_owned(self) -> JsonRpcId<'static> {
        JsonRpcId(Cow::Owned(self.0.into_owned()))
    }
}

impl From<u64> for JsonRpcId<'static> {
    fn from(number: u64) -> Self {
        JsonRpcId(Cow::Owned(number.to_string()))
    }
}

impl<'a> JsonRpcId<'a> {
    pub(super) fn from_raw(raw: Option<&'a RawValue>) -> Option<Self> {
        let text = raw.map_or("null", RawValue::get);
        if text.len() > MAX_ID_BYTES {
            return None;
        }
        let whole = !text.contains(['.', 'e', 'E'])
            && text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        // `Json` rejects lone surrogates, which other parsers could not read back.
        let string = || text.starts_with('"') && Json::parse(text).is_ok();
        (whole || text == "null" || string()).then_some(Self(Cow::Borrowed(text)))
    }
}

/// Request with unparsed params.
#[derive(Debug, Clone)]
pub struct JsonRpcRequest<'a> {
    /// Request id, returned unchanged.
    pub id: JsonRpcId<'a>,
    /// Method name.
    pub method: Cow<'a, str>,
    /// Unparsed params; `{}` if absent. The caller validates them, because the error depends on the
    /// method.
    pub params: &'a str,
}

/// Rejected request with the id for the error response.
#[derive(Debug)]
pub struct RejectedRequest<'a> {
    /// Request id, or `null` if it is unreadable.
    pub id: JsonRpcId<'a>,
    /// Reason for the rejection.
    pub error: Error,
}

#[derive(Deserialize)]
struct JsonRpcEnvelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// String, borrowed if it contains no escapes. The newtype is needed because serde copies a bare
/// `Cow` inside `Option`.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct BorrowedText<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Reads a request.
///
/// # Errors
/// The body is not JSON, or not a single request.
pub fn read_request(body: &[u8]) -> Result<JsonRpcRequest<'_>, RejectedRequest<'_>> {
    let no_id = |error: Error| RejectedRequest {
        id: JsonRpcId::NULL,
        error,
    };
    let text = check_depth(body).map_err(no_id)?;
    let envelope: JsonRpcEnvelope<'_> =
        read(text).map_err(|error| no_id(explain_invalid_envelope(text, error)))?;
    let Some(id) = JsonRpcId::from_raw(envelope.id) else {
        return Err(no_id(invalid_id(envelope.id)));
    };
    let refuse = |id, error| Err(RejectedRequest { id, error });
    if envelope
        .jsonrpc
        .is_none_or(|BorrowedText(version)| version != "2.0")
    {
        return refuse(id, invalid("jsonrpc", "must be \"2.0\""));
    }
    let Some(BorrowedText(method)) = envelope
        .method
        .filter(|BorrowedText(method)| !method.is_empty())
    else {
        return refuse(id, invalid("method", "must be the name of a method"));
    };
    Ok(JsonRpcRequest {
        id,
        method,
        params: envelope.params.map_or("{}", RawValue::get),
    })
}

/// Explains why an id is not valid.
fn invalid_id(id: Option<&RawValue>) -> Error {
    let length = id.map_or(0, |id| id.get().len());
    if length > MAX_ID_BYTES {
        let rule = format!("must be at most {MAX_ID_BYTES} bytes of JSON, not {length}");
        return invalid("id", rule);
    }
    invalid("id", "must be a string, a whole number or null")
}

/// Explains why the body is not a JSON-RPC request.
fn explain_invalid_envelope(text: &str, error: Error) -> Error {
    match Json::parse(text).map(Object::try_from) {
        Err(_) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() => {
            ErrorKind::Parse.into()
        }
        Ok(Err(_)) if text.trim_start().starts_with('[') => {
            invalid("", "must be a single call: batches are not supported")
        }
        Ok(Err(_)) => invalid("", "must be an object"),
        _ => match error.violations().first() {
            Some(violation) => invalid(violation.field(), violation.description().to_owned()),
            None => ErrorKind::InvalidRequest.into(),
        },
    }
}

fn invalid(field: &str, rule: impl Into<Cow<'static, str>>) -> Error {
    let rule = rule.into();
    let subject = if field.is_empty() {
        "the request"
    } else {
        field
    };
    let message = format!("{}: {subject} {rule}", ErrorKind::InvalidRequest.message());
    Error::new(ErrorKind::InvalidRequest)
        .with_message(message)
        .with_violation(Violation::new(field, rule))
}

/// Writes the response envelope up to the result. The caller appends the result, then
/// [`end_result`].
pub fn begin_result(out: &mut Vec<u8>, id: &JsonRpcId<'_>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(br#","result":"#);
}

/// Closes the response envelope.
pub fn end_result(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// Writes an error response.
pub fn write_error(out: &mut Vec<u8>, id: &JsonRpcId<'_>, error: &Error, version: Version) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(br#","error":"#);
    super::write_json(out, &JsonRpcError(error, version));
    out.push(b'}');
}

/// Writes a request; `params` appends the params object.
pub fn write_request(
    out: &mut Vec<u8>,
    id: &JsonRpcId<'_>,
    method: &str,
    params: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(br#","method":"#);
    super::write_json(out, method);
    let end = out.len();
    out.extend_from_slice(br#","params":"#);
    params(out);
    if method_name(Operation::GetExtendedAgentCard, Version::V03) == Some(method) {
        // This method of 0.3 has no params. Strict peers reject even an empty object.
        out.truncate(end);
    }
    out.push(b'}');
}

/// Response with an unparsed result.
#[derive(Debug)]
pub struct JsonRpcResponse<'a> {
    /// Id of the answered request.
    pub id: JsonRpcId<'a>,
    /// Result, `null` if absent, or the error.
    pub result: Result<&'a str, Error>,
}

/// Reads a response of any peer.
///
/// # Errors
/// The body is not JSON, or not a response.
pub fn read_response(body: &[u8]) -> Result<JsonRpcResponse<'_>, Error> {
    #[derive(Deserialize)]
    struct ResponseMembers<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let text = check_depth(body)?;
    let answer: ResponseMembers<'_> =
        read(text).map_err(|error| explain_invalid_envelope(text, error))?;
    let result = match (answer.error, answer.result) {
        (Some(error), _) => Err(read_jsonrpc_error(error.get())),
        // Both official Python SDKs omit a `null` result.
        (None, result) => Ok(result.map_or("null", RawValue::get)),
    };
    Ok(JsonRpcResponse {
        id: JsonRpcId::from_raw(answer.id).unwrap_or(JsonRpcId::NULL),
        result,
    })
}

/// Reads a response with an HTTP error status. The JSON-RPC code decides if it has a defined
/// meaning, else the status.
#[must_use]
pub fn read_http_error(status: u16, body: &[u8]) -> Error {
    let peer_error = read_error_response(body).or_else(|| {
        // A rejected 0.3 stream has the error as its only event (01 §6).
        let mut events = Decoder::default();
        events.push(body);
        read_error_response(events.next()?.ok()?.data.as_bytes())
    });
    let kind = match (peer_error.as_ref().map(Error::kind), status) {
        (Some(ErrorKind::Other(_)), 401 | 403 | 429 | 503) | (None, _) => kind_from_status(status),
        (Some(kind), _) => kind,
    };
    match peer_error {
        Some(error) if error.kind() == kind => error,
        Some(error) => Error::new(kind).with_message(error.message().to_owned()),
        None if matches!(status, 404 | 405) => Error::new(kind).with_source(MissingEndpoint),
        None => Error::new(kind),
    }
}

/// Source of the error for an HTTP status 404 or 405 without a JSON-RPC error.
#[derive(Debug)]
struct MissingEndpoint;

impl std::fmt::Display for MissingEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no JSON-RPC endpoint at this URL")
    }
}

impl std::error::Error for MissingEndpoint {}

/// Whether an error of [`read_http_error`] says that there is no JSON-RPC endpoint at the URL.
#[must_use]
pub fn is_missing_endpoint(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<MissingEndpoint>())
}

fn read_error_response(body: &[u8]) -> Option<Error> {
    read_response(body).ok()?.result.err()
}

/// Converts an HTTP status. JSON-RPC has a single path, so 404 does not mean an unknown task.
fn kind_from_status(status: u16) -> ErrorKind {
    match status {
        404 => ErrorKind::MethodNotFound,
        status => read_rest_error(status, "").kind(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (i32, String, String) {
        let refused = read_request(body.as_bytes()).unwrap_err();
        let code = super::super::errors::jsonrpc_code(refused.error.kind());
        (
            code,
            refused.id.as_json().to_owned(),
            refused.error.message().to_owned(),
        )
    }

    #[test]
    fn s69_invalid_requests_are_rejected_with_a_reason() {
        let invalid = |rule: &str| format!("Request payload validation error: {rule}");
        for (body, code, id, message) in [
            ("{", -32700, "null", "Invalid JSON payload".to_owned()),
            ("", -32700, "null", "Invalid JSON payload".to_owned()),
            (
                "5",
                -32600,
                "null",
                invalid("the request must be an object"),
            ),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#,
                -32600,
                "null",
                invalid("the request must be a single call: batches are not supported"),
            ),
            (
                r#"["2.0",1,"GetTask",{}]"#,
                -32600,
                "null",
                invalid("the request must be a single call: batches are not supported"),
            ),
            (
                r#"{"id":1,"method":"x"}"#,
                -32600,
                "1",
                invalid("jsonrpc must be \"2.0\""),
            ),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,
                -32600,
                "1",
                invalid("jsonrpc must be \"2.0\""),
            ),
            (
                r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#,
                -32600,
                "null",
                invalid("jsonrpc must be a string"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a"}"#,
                -32600,
                "\"a\"",
                invalid("method must be the name of a method"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":""}"#,
                -32600,
                "1",
                invalid("method must be the name of a method"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
                -32600,
                "null",
                invalid("method must be a string"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,
                -32600,
                "null",
                invalid("id must be a string, a whole number or null"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
                -32600,
                "null",
                invalid("id must be a string, a whole number or null"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":true,"method":"x"}"#,
                -32600,
                "null",
                invalid("id must be a string, a whole number or null"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
                -32600,
                "null",
                invalid("id must be given only once"),
            ),
        ] {
            assert_eq!(refused(body), (code, id.to_owned(), message), "{body}");
        }
    }

    #[test]
    fn ids_are_returned_unchanged() {
        for id in [
            "0",
            "-7",
            "9223372036854775807",
            "123456789012345678901234567890",
            "\"\"",
            "\"a\\u00e9\\n\"",
            "null",
        ] {
            let body = format!(r#"{{"id":{id},"method":"x","jsonrpc":"2.0"}}"#);
            let request = read_request(body.as_bytes()).unwrap();
            assert_eq!((request.id.as_json(), request.params), (id, "{}"));
        }
        assert_eq!(
            read_request(br#"{"method":"x","jsonrpc":"2.0","params":null}"#)
                .unwrap()
                .id,
            JsonRpcId::NULL
        );
    }

    #[test]
    fn v03_extended_card_request_has_no_params() {
        for (method, params) in [
            ("agent/getAuthenticatedExtendedCard", ""),
            ("GetExtendedAgentCard", r#","params":{}"#),
        ] {
            let mut out = Vec::new();
            write_request(&mut out, &JsonRpcId::from(7), method, |out| {
                out.extend_from_slice(b"{}")
            });
            let wanted = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}"{params}}}"#);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }

    #[test]
    fn http_error_is_read_by_code_or_status() {
        let coded = |code: i32| {
            format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"no"}}}}"#)
        };
        for (status, body, kind, message) in [
            (
                401,
                String::new(),
                ErrorKind::Unauthenticated,
                "Authentication required",
            ),
            (401, coded(-32000), ErrorKind::Unauthenticated, "no"),
            (429, coded(-32000), ErrorKind::RateLimited, "no"),
            (413, coded(-32600), ErrorKind::InvalidRequest, "no"),
            (400, coded(-32001), ErrorKind::TaskNotFound, "no"),
            (500, coded(-32042), ErrorKind::Other(-32042), "no"),
            (
                404,
                "<html>".to_owned(),
                ErrorKind::MethodNotFound,
                "Method not found",
            ),
            (
                500,
                "oops".to_owned(),
                ErrorKind::Internal,
                "Internal error",
            ),
            (
                503,
                r#"{"jsonrpc":"2.0"}"#.to_owned(),
                ErrorKind::Unavailable,
                "Service unavailable",
            ),
        ] {
            let error = read_http_error(status, body.as_bytes());
            assert_eq!(
                (error.kind(), error.message()),
                (kind, message),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn d12_an_id_has_at_most_256_bytes() {
        let request = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask"}}"#);
        let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        for id in [text(256), "9".repeat(256)] {
            let body = request(&id);
            assert_eq!(read_request(body.as_bytes()).unwrap().id.as_json(), id);
        }
        for id in [text(257), "9".repeat(257), text(7 << 20)] {
            let expected = format!(
                "Request payload validation error: id must be at most 256 bytes of JSON, not {}",
                id.len()
            );
            assert_eq!(
                refused(&request(&id)),
                (-32600, "null".to_owned(), expected)
            );
        }
    }

    #[test]
    fn missing_result_is_null() {
        let answer = read_response(br#"{"jsonrpc":"2.0","id":1}"#).unwrap();
        assert_eq!(answer.result.unwrap(), "null");
    }
}
