//! The JSON-RPC envelope, both directions. Params stay text until the method says what they are.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::{JsonRpcError, read_jsonrpc_error, read_rest_error};
use super::json::{check_depth, read};
use super::method::method_name;
use super::sse::Decoder;
use crate::model::{Error, ErrorKind, Json, Object, Operation, Version, Violation};

/// The id of a call as it was sent: a string, a whole number of any size, or `null`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonRpcId<'a>(Cow<'a, str>);

impl JsonRpcId<'_> {
    /// `null`: no id, or none that could be read.
    pub const NULL: JsonRpcId<'static> = JsonRpcId(Cow::Borrowed("null"));

    /// The id as JSON.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The id on its own, for a stream that outlives the request.
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
        let whole = !text.contains(['.', 'e', 'E'])
            && text.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        // Through `Json`, so that what we send back is text that everybody can read.
        let string = || text.starts_with('"') && Json::parse(text).is_ok();
        (whole || text == "null" || string()).then_some(Self(Cow::Borrowed(text)))
    }
}

/// A call whose params are still text.
#[derive(Debug, Clone)]
pub struct JsonRpcRequest<'a> {
    /// To be sent back as it is.
    pub id: JsonRpcId<'a>,
    /// What is called.
    pub method: Cow<'a, str>,
    /// Whatever they are; `{}` if there were none. Which error they are depends on the method.
    pub params: &'a str,
}

/// A call that cannot be taken, and the id to answer with.
#[derive(Debug)]
pub struct RejectedRequest<'a> {
    /// The id, if it could be read.
    pub id: JsonRpcId<'a>,
    /// Why.
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

/// A text, borrowed where it has no escapes; inside an `Option` serde would copy a bare `Cow`.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct BorrowedText<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Reads a call.
///
/// # Errors
/// The body is not JSON, or not one call.
pub fn read_request(body: &[u8]) -> Result<JsonRpcRequest<'_>, RejectedRequest<'_>> {
    let no_id = |error: Error| RejectedRequest {
        id: JsonRpcId::NULL,
        error,
    };
    let text = check_depth(body).map_err(no_id)?;
    let envelope: JsonRpcEnvelope<'_> =
        read(text).map_err(|error| no_id(explain_invalid_envelope(text, error)))?;
    let Some(id) = JsonRpcId::from_raw(envelope.id) else {
        return Err(no_id(invalid(
            "id",
            "must be a string, a whole number or null",
        )));
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

/// The body is something else; says what.
fn explain_invalid_envelope(text: &str, error: Error) -> Error {
    match Json::parse(text).map(Object::try_from) {
        Err(_) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() => {
            ErrorKind::Parse.into()
        }
        Ok(Err(_)) if text.trim_start().starts_with('[') => {
            invalid("", "must be one call: batches are not served")
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

/// Writes the beginning of an answer; the result follows, then [`end_result`].
pub fn begin_result(out: &mut Vec<u8>, id: &JsonRpcId<'_>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(br#","result":"#);
}

/// Writes the end of an answer.
pub fn end_result(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// Writes an answer that is an error.
pub fn write_error(out: &mut Vec<u8>, id: &JsonRpcId<'_>, error: &Error, version: Version) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(br#","error":"#);
    super::write_json(out, &JsonRpcError(error, version));
    out.push(b'}');
}

/// Writes a call; `params` writes the object.
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
        // The one call that has no params; models that are strict refuse even an empty object.
        out.truncate(end);
    }
    out.push(b'}');
}

/// An answer whose result is still text.
#[derive(Debug)]
pub struct JsonRpcResponse<'a> {
    /// The id of the call it answers.
    pub id: JsonRpcId<'a>,
    /// The result, `null` if it was left out, or the error.
    pub result: Result<&'a str, Error>,
}

/// Reads an answer, as any peer may send it.
///
/// # Errors
/// The body is not JSON, or no answer.
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
        // Both official Python SDKs leave `result` out where it is null.
        (None, result) => Ok(result.map_or("null", RawValue::get)),
    };
    Ok(JsonRpcResponse {
        id: JsonRpcId::from_raw(answer.id).unwrap_or(JsonRpcId::NULL),
        result,
    })
}

/// Reads an answer whose HTTP status is no success: the code decides where it has a meaning, else the status.
#[must_use]
pub fn read_http_error(status: u16, body: &[u8]) -> Error {
    let peer_error = read_error_response(body).or_else(|| {
        // 01 §6: what a 0.3 stream is refused with is its one event.
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
        None => Error::new(kind),
    }
}

fn read_error_response(body: &[u8]) -> Option<Error> {
    read_response(body).ok()?.result.err()
}

/// A path that is not there is no task that is not there: JSON-RPC has one path.
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
    fn s69_what_is_no_call_is_refused_with_its_reason() {
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
                invalid("the request must be one call: batches are not served"),
            ),
            (
                r#"["2.0",1,"GetTask",{}]"#,
                -32600,
                "null",
                invalid("the request must be one call: batches are not served"),
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
    fn ids_go_back_as_they_came() {
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
    fn the_call_of_0_3_that_takes_no_params_has_none() {
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
    fn a_refusal_by_http_is_read_by_its_code_or_its_status() {
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
    fn an_answer_without_a_result_is_null() {
        let answer = read_response(br#"{"jsonrpc":"2.0","id":1}"#).unwrap();
        assert_eq!(answer.result.unwrap(), "null");
    }
}
