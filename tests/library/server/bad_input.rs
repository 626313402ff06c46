//! Validation of requests on every binding and in every version: the error has the code, the field and the rule. It never
//! has the input. These rules apply before the server looks up a task.

use attache::model::{Limits, Request, Version};
use attache::wire::errors::{JsonRpcError, RestError, http_status, jsonrpc_code};
use attache::wire::method::find_method;
use attache::wire::path::route;
use attache::wire::{self, Dialect, jsonrpc};
use attache::{Error, ErrorKind};
use serde_json::{Value, json};

/// A marker that no response may contain.
const SECRET: &str = "hunter2";

type Read = Result<(Request, Dialect), Error>;

/// Reads a JSON-RPC body. Returns the id of the response and the request or error.
fn read_body(body: &[u8]) -> (String, Read) {
    let call = match jsonrpc::read_request(body) {
        Ok(call) => call,
        Err(refused) => return (refused.id.as_json().to_owned(), Err(refused.error)),
    };
    let read = match find_method(&call.method) {
        Ok(method) => wire::read_params(method, call.params).and_then(validate),
        Err(_) => Err(ErrorKind::MethodNotFound.into()),
    };
    (call.id.as_json().to_owned(), read)
}

fn validate(read: (Request, Dialect)) -> Read {
    let (request, dialect) = read;
    request
        .validate(&Limits::default())
        .map(|()| (request, dialect))
}

fn read_call(method: &str, params: &str) -> Read {
    read_body(
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#).as_bytes(),
    )
    .1
}

/// Reads a REST request such as `GET /tasks?pageSize=0`.
fn read_rest(line: &str, body: &str) -> Read {
    let (http_method, target) = line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let route = route(http_method, path).unwrap_or_else(|no| panic!("{line}: {no:?}"));
    wire::read_rest(&route, query, body.as_bytes()).and_then(validate)
}

/// Returns a description of the mismatch if the error does not name this field and this rule.
fn fault(read: Read, version: Version, field: &str, rule: &str) -> Result<(), String> {
    let error = match read {
        Ok((request, _)) => return Err(format!("taken as {request:?}")),
        Err(error) => error,
    };
    let message = match field {
        "" => format!("Invalid parameters: {rule}"),
        field => format!("Invalid parameters: {field} {rule}"),
    };
    let said: Vec<_> = error
        .violations()
        .iter()
        .map(|v| (v.field(), v.description()))
        .collect();
    if (error.kind(), error.message(), said.as_slice())
        != (ErrorKind::InvalidParams, message.as_str(), &[(field, rule)])
    {
        return Err(format!("{:?} {:?} {said:?}", error.kind(), error.message()));
    }
    check_encoding(&error, version, field, rule)
}

/// Checks the encoded error: its code, its HTTP status, and its details if the version has them.
fn check_encoding(error: &Error, version: Version, field: &str, rule: &str) -> Result<(), String> {
    let write = |body: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        body(&mut out);
        serde_json::from_slice::<Value>(&out).unwrap()
    };
    let rpc = write(&|out| wire::write_json(out, &JsonRpcError(error, version)));
    let rest = write(&|out| wire::write_json(out, &RestError(error, version)));
    let details = |field: &str, rule: &str| {
        json!([
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_PARAMS", "domain": "a2a-protocol.org"},
            {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": field, "description": rule}]},
        ])
    };
    let details = match version {
        Version::V1 => details(field, rule),
        Version::V03 => details(&in_v03_terms(field), &in_v03_terms(rule)),
    };
    let (status, data) = match version {
        Version::V1 => (400, details.clone()),
        Version::V03 => (422, Value::Null),
    };
    let right = jsonrpc_code(error.kind()) == -32602
        && http_status(error.kind(), version) == status
        && rpc["code"] == -32602
        && rpc["data"] == data
        && rest["error"]["code"] == status
        && rest["error"]["details"] == details
        && (version == Version::V1 || rest["code"] == -32602)
        && !rpc.to_string().contains(SECRET)
        && !rest.to_string().contains(SECRET);
    if right {
        Ok(())
    } else {
        Err(format!("{rpc} {rest}"))
    }
}

/// Names that REST of 0.3 uses instead of those of 1.0 (06 §2).
fn in_v03_terms(text: &str) -> String {
    let text = if text.ends_with("authentication.scheme") {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    text.replace("taskPushNotificationConfig", "pushNotification")
        .replace("text, raw, url, data", "text, file, data")
        .replace("mediaType", "file.mimeType")
}

/// Test row: a method and its params, or a request line and its body, then the invalid field and the rule.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str);

fn refuse(version: Version, rows: &[Row<'_>]) {
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|&(call, text, field, rule)| {
            let read = if call.contains(' ') {
                read_rest(call, text)
            } else {
                read_call(call, text)
            };
            let fault = fault(read, version, field, rule).err()?;
            Some(format!(
                "{call} {text}\n  wanted {field:?} {rule:?}\n  got    {fault}"
            ))
        })
        .collect();
    assert!(
        faults.is_empty(),
        "{} of {} rows:\n{}",
        faults.len(),
        rows.len(),
        faults.join("\n")
    );
}

/// Asserts that valid requests are accepted, so that only the fault of a bad row causes its error.
fn accept(rows: &[(&str, &str)]) {
    for &(call, text) in rows {
        let read = if call.contains(' ') {
            read_rest(call, text)
        } else {
            read_call(call, text)
        };
        if let Err(error) = read {
            panic!("{call} {text}: {error}");
        }
    }
}

const ONCE: &str = "must be given only once";
const STRING: &str = "must be a string";
const OBJECT: &str = "must be an object";
const ARRAY: &str = "must be an array";
const FLAG: &str = "must be true or false";
const INT32: &str = "must be a 32-bit whole number";
const NOT_EMPTY: &str = "must not be empty";
const NOT_NEGATIVE: &str = "must not be negative";
const REQUIRED: &str = "is required";
const TOO_LONG: &str = "must be at most 256 bytes long";
const CONTROL: &str = "must not contain control characters";
const ONE_CONTENT: &str = "must have exactly one of text, raw, url, data";
const ONE_FILE: &str = "must have exactly one of bytes, uri";
const SOME_PART: &str = "must contain at least one element";
const ROLE: &str = "must be ROLE_USER or ROLE_AGENT";
const STATE: &str = "must be a task state such as TASK_STATE_WORKING";
const TIME: &str = "must be an RFC 3339 time such as 2026-03-14T09:26:53.589Z";
const MISMATCH: &str = "does not match the path";

#[test]
fn s69_an_invalid_envelope_is_refused_before_its_method() {
    let invalid = |rule: &str| format!("Request payload validation error: {rule}");
    let id = invalid("id must be a string, a whole number or null");
    let jsonrpc = invalid("jsonrpc must be \"2.0\"");
    let method = invalid("method must be the name of a method");
    let batch = invalid("the request must be a single call: batches are not supported");
    let params = "Invalid parameters: params must be an object".to_owned();
    let json = "Invalid JSON payload".to_owned();
    let calls = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\"},".repeat(100_000);
    let batch_of_many = format!("[{}1]", calls);
    for (body, code, answer_id, field, message) in [
        ("", -32700, "null", None, &json),
        ("{", -32700, "null", None, &json),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask",}"#,
            -32700,
            "null",
            None,
            &json,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask"} x"#,
            -32700,
            "null",
            None,
            &json,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":\"a\nb\",\"method\":\"x\"}",
            -32700,
            "null",
            None,
            &json,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":}}"#,
            -32700,
            "null",
            None,
            &json,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"Nothing","params":{"id":01}}"#,
            -32700,
            "null",
            None,
            &json,
        ),
        ("// a comment\n{}", -32700, "null", None, &json),
        ("[]", -32600, "null", Some(""), &batch),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#,
            -32600,
            "null",
            Some(""),
            &batch,
        ),
        (&batch_of_many, -32600, "null", Some(""), &batch),
        (
            "5",
            -32600,
            "null",
            Some(""),
            &invalid("the request must be an object"),
        ),
        (
            "null",
            -32600,
            "null",
            Some(""),
            &invalid("the request must be an object"),
        ),
        (
            r#"{"id":1,"method":"GetTask"}"#,
            -32600,
            "1",
            Some("jsonrpc"),
            &jsonrpc,
        ),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#,
            -32600,
            "1",
            Some("jsonrpc"),
            &jsonrpc,
        ),
        (
            r#"{"jsonrpc":"2.00","id":"x","method":"GetTask"}"#,
            -32600,
            "\"x\"",
            Some("jsonrpc"),
            &jsonrpc,
        ),
        (
            r#"{"jsonrpc":2.0,"id":1,"method":"GetTask"}"#,
            -32600,
            "null",
            Some("jsonrpc"),
            &invalid("jsonrpc must be a string"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1}"#,
            -32600,
            "1",
            Some("method"),
            &method,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":""}"#,
            -32600,
            "1",
            Some("method"),
            &method,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
            -32600,
            "1",
            Some("method"),
            &method,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            -32600,
            "null",
            Some("method"),
            &invalid("method must be a string"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"GetTask"}"#,
            -32600,
            "null",
            Some("id"),
            &id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1e3,"method":"GetTask"}"#,
            -32600,
            "null",
            Some("id"),
            &id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":true,"method":"GetTask"}"#,
            -32600,
            "null",
            Some("id"),
            &id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#,
            -32600,
            "null",
            Some("id"),
            &id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":[1],"method":"GetTask"}"#,
            -32600,
            "null",
            Some("id"),
            &id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":"\ud800","method":"GetTask"}"#,
            -32600,
            "null",
            Some("id"),
            &id,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"GetTask"}"#,
            -32600,
            "null",
            Some("id"),
            &invalid("id must be given only once"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","method":"ListTasks"}"#,
            -32600,
            "null",
            Some("method"),
            &invalid("method must be given only once"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{},"params":{}}"#,
            -32600,
            "null",
            Some("params"),
            &invalid("params must be given only once"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}"#,
            -32602,
            "1",
            Some("params"),
            &params,
        ),
        (
            r#"{"jsonrpc":"2.0","id":"7","method":"tasks/get","params":["t"]}"#,
            -32602,
            "\"7\"",
            Some("params"),
            &params,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":"t"}"#,
            -32602,
            "1",
            Some("params"),
            &params,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":5}"#,
            -32602,
            "1",
            Some("params"),
            &params,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"x"}"#,
            -32601,
            "null",
            None,
            &"Method not found".to_owned(),
        ),
    ] {
        let (id, read) = read_body(body.as_bytes());
        let error = read.unwrap_err();
        let said = error
            .violations()
            .first()
            .map(attache::model::Violation::field);
        let short: String = body.chars().take(200).collect();
        assert_eq!(
            (
                jsonrpc_code(error.kind()),
                id.as_str(),
                said,
                error.message()
            ),
            (code, answer_id, field, message.as_str()),
            "{short}"
        );
    }
    assert_eq!(read_body(b"\xff").1.unwrap_err().kind(), ErrorKind::Parse);
}

#[test]
fn s69_a_call_without_an_id_is_answered_like_any_other() {
    let (id, read) = read_body(br#"{"jsonrpc":"2.0","method":"GetTask","params":{"id":"t"}}"#);
    assert_eq!((id.as_str(), read.is_ok()), ("null", true));
    let (id, read) = read_body(br#"{"jsonrpc":"2.0","method":"GetTask"}"#);
    assert_eq!(
        (id.as_str(), jsonrpc_code(read.unwrap_err().kind())),
        ("null", -32602)
    );
}

#[test]
fn a_message_of_1_0_is_validated() {
    accept(&[(
        "SendMessage",
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":""}]}}"#,
    )]);
    let v1 = [
        ("SendMessage", "{}", "message", REQUIRED),
        (
            "SendStreamingMessage",
            r#"{"message":null}"#,
            "message",
            REQUIRED,
        ),
        ("SendMessage", r#"{"message":[]}"#, "message", OBJECT),
        (
            "SendMessage",
            r#"{"message":["m","ROLE_USER"]}"#,
            "message",
            OBJECT,
        ),
        ("SendMessage", r#"{"message":"hunter2"}"#, "message", OBJECT),
        (
            "SendMessage",
            r#"{"message":{}}"#,
            "message.messageId",
            NOT_EMPTY,
        ),
        (
            "SendMessage",
            r#"{"message":{"role":"ROLE_USER","parts":[{"text":""}]}}"#,
            "message.messageId",
            NOT_EMPTY,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":""}]}}"#,
            "message.messageId",
            NOT_EMPTY,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":null,"role":1,"parts":[{"text":""}]}}"#,
            "message.messageId",
            NOT_EMPTY,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":5}}"#,
            "message.messageId",
            STRING,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","parts":[{"text":""}]}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":null,"parts":[]}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":"ROLE_UNSPECIFIED"}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":0}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":"hunter2"}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":""}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":3}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":-1}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":18446744073709551615}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":1.5}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":true}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":["ROLE_USER"]}}"#,
            "message.role",
            ROLE,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":"ROLE_USER"}}"#,
            "message.parts",
            SOME_PART,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}"#,
            "message.parts",
            SOME_PART,
        ),
        (
            "SendStreamingMessage",
            r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":null}}"#,
            "message.parts",
            SOME_PART,
        ),
        (
            "SendMessage",
            r#"{"message":{"parts":{"text":"x"}}}"#,
            "message.parts",
            ARRAY,
        ),
        (
            "SendMessage",
            r#"{"message":{"parts":"hunter2"}}"#,
            "message.parts",
            ARRAY,
        ),
        (
            "SendMessage",
            r#"{"message":{"extensions":"hunter2"}}"#,
            "message.extensions",
            ARRAY,
        ),
        (
            "SendMessage",
            r#"{"message":{"extensions":["u",5]}}"#,
            "message.extensions[1]",
            STRING,
        ),
        (
            "SendMessage",
            r#"{"message":{"referenceTaskIds":[{}]}}"#,
            "message.referenceTaskIds[0]",
            STRING,
        ),
        (
            "SendMessage",
            r#"{"message":{"metadata":[]}}"#,
            "message.metadata",
            OBJECT,
        ),
        (
            "SendMessage",
            r#"{"message":{"metadata":"hunter2"}}"#,
            "message.metadata",
            OBJECT,
        ),
        ("SendMessage", r#"{"metadata":5}"#, "metadata", OBJECT),
        (
            "SendMessage",
            r#"{"configuration":[]}"#,
            "configuration",
            OBJECT,
        ),
        ("SendMessage", r#"{"tenant":5}"#, "tenant", STRING),
        (
            "SendMessage",
            r#"{"message":{"contextId":{}}}"#,
            "message.contextId",
            STRING,
        ),
        (
            "SendMessage",
            r#"{"message":{"messageId":"a\ud800"}}"#,
            "message.messageId",
            "must be valid Unicode text",
        ),
        (
            "SendMessage",
            r#"{"message":{"metadata":{"a":"\udc00"}}}"#,
            "message.metadata",
            "must not contain a lone surrogate escape",
        ),
    ];
    refuse(Version::V1, &v1);
    // The same bodies over REST.
    let rest: Vec<Row<'_>> = v1
        .iter()
        .map(|&(_, body, field, rule)| ("POST /message:send", body, field, rule))
        .collect();
    refuse(Version::V1, &rest);
    refuse(
        Version::V1,
        &[
            ("POST /message:stream", "[]", "", OBJECT),
            ("POST /message:send", "", "message", REQUIRED),
        ],
    );
}

#[test]
fn a_message_of_0_3_is_validated() {
    accept(&[
        (
            "message/send",
            r#"{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":""}]}}"#,
        ),
        (
            "POST /v1/message:send",
            r#"{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":""}]}}"#,
        ),
    ]);
    refuse(
        Version::V03,
        &[
            ("message/send", "{}", "message", REQUIRED),
            ("message/stream", r#"{"message":null}"#, "message", REQUIRED),
            ("message/send", r#"{"message":[]}"#, "message", OBJECT),
            (
                "message/send",
                r#"{"message":{"kind":"task"}}"#,
                "message.kind",
                "must be message",
            ),
            (
                "message/send",
                r#"{"message":{"kind":"hunter2"}}"#,
                "message.kind",
                "must be message",
            ),
            (
                "message/send",
                r#"{"message":{"kind":5}}"#,
                "message.kind",
                STRING,
            ),
            (
                "message/send",
                r#"{"message":{"role":"user","parts":[{"kind":"text","text":""}]}}"#,
                "message.messageId",
                NOT_EMPTY,
            ),
            (
                "message/send",
                r#"{"message":{"messageId":"m","parts":[{"kind":"text","text":""}]}}"#,
                "message.role",
                ROLE,
            ),
            (
                "message/send",
                r#"{"message":{"messageId":"m","role":"system"}}"#,
                "message.role",
                ROLE,
            ),
            (
                "message/send",
                r#"{"message":{"messageId":"m","role":7}}"#,
                "message.role",
                ROLE,
            ),
            (
                "message/send",
                r#"{"message":{"messageId":"m","role":"user","parts":[]}}"#,
                "message.parts",
                SOME_PART,
            ),
            (
                "message/stream",
                r#"{"message":{"messageId":"m","role":"user"}}"#,
                "message.parts",
                SOME_PART,
            ),
            (
                "message/send",
                r#"{"message":{"parts":{}}}"#,
                "message.parts",
                ARRAY,
            ),
            (
                "message/send",
                r#"{"message":{"metadata":[]}}"#,
                "message.metadata",
                OBJECT,
            ),
            (
                "message/send",
                r#"{"metadata":"hunter2"}"#,
                "metadata",
                OBJECT,
            ),
            (
                "message/send",
                r#"{"configuration":true}"#,
                "configuration",
                OBJECT,
            ),
            (
                "message/send",
                r#"{"configuration":{"acceptedOutputModes":"text/plain"}}"#,
                "configuration.acceptedOutputModes",
                ARRAY,
            ),
            (
                "message/send",
                r#"{"configuration":{"blocking":"hunter2"}}"#,
                "configuration.blocking",
                FLAG,
            ),
            ("POST /v1/message:send", "", "message", REQUIRED),
            ("POST /v1/message:send", "[]", "", OBJECT),
            (
                "POST /v1/message:send",
                r#"{"message":{"role":"ROLE_USER","content":[{"text":""}]}}"#,
                "message.messageId",
                NOT_EMPTY,
            ),
            (
                "POST /v1/message:send",
                r#"{"message":{"messageId":"m","content":[]}}"#,
                "message.role",
                ROLE,
            ),
            (
                "POST /v1/message:stream",
                r#"{"request":{"messageId":"m","role":"ROLE_USER","content":[]}}"#,
                "message.parts",
                SOME_PART,
            ),
            // Requests in the JSON form of 0.3, over REST.
            (
                "POST /v1/message:send",
                r#"{"message":{"kind":"task","messageId":"m","role":"user"}}"#,
                "message.kind",
                "must be message",
            ),
            (
                "POST /v1/message:send",
                r#"{"message":{"messageId":"m","role":"user","parts":[]}}"#,
                "message.parts",
                SOME_PART,
            ),
        ],
    );
}

#[test]
fn a_message_of_0_1_needs_a_role_and_parts() {
    accept(&[(
        "tasks/send",
        r#"{"id":"t","message":{"role":"user","parts":[{"type":"text","text":""}]}}"#,
    )]);
    let long = format!(
        r#"{{"id":"{}","message":{{"role":"user","parts":[{{"text":""}}]}}}}"#,
        "x".repeat(257)
    );
    refuse(
        Version::V03,
        &[
            ("tasks/send", "{}", "message", REQUIRED),
            (
                "tasks/send",
                r#"{"id":"t","message":{"parts":[{"type":"text","text":""}]}}"#,
                "message.role",
                ROLE,
            ),
            (
                "tasks/sendSubscribe",
                r#"{"id":"t","message":{"role":"user"}}"#,
                "message.parts",
                SOME_PART,
            ),
            ("tasks/send", &long, "id", TOO_LONG),
            (
                "tasks/send",
                r#"{"id":"a\u0000","message":{"role":"user","parts":[{"text":""}]}}"#,
                "id",
                CONTROL,
            ),
            ("tasks/send", r#"{"id":5}"#, "id", STRING),
            (
                "tasks/send",
                r#"{"historyLength":1.5}"#,
                "historyLength",
                INT32,
            ),
            (
                "tasks/send",
                r#"{"id":"t","historyLength":-1,"message":{"role":"user","parts":[{"text":""}]}}"#,
                "configuration.historyLength",
                NOT_NEGATIVE,
            ),
            (
                "tasks/pushNotification/set",
                r#"{"id":"t","pushNotificationConfig":{}}"#,
                "url",
                NOT_EMPTY,
            ),
            (
                "tasks/pushNotification/set",
                r#"{"pushNotificationConfig":{"url":"https://c.example"}}"#,
                "taskId",
                NOT_EMPTY,
            ),
            ("tasks/pushNotification/get", "{}", "id", NOT_EMPTY),
        ],
    );
}

#[test]
fn a_part_has_exactly_one_content() {
    let rows: [(&str, &str, &str); 21] = [
        ("{}", "", ONE_CONTENT),
        (r#"{"text":null}"#, "", ONE_CONTENT),
        (r#"{"mediaType":"text/plain"}"#, "", ONE_CONTENT),
        (r#"{"text":"a","url":"hunter2"}"#, "", ONE_CONTENT),
        (r#"{"raw":"","url":""}"#, "", ONE_CONTENT),
        (r#"{"text":"a","file":{"uri":"u"}}"#, "", ONE_CONTENT),
        (r#"{"text":5}"#, ".text", STRING),
        (r#"{"url":["u"]}"#, ".url", STRING),
        (r#"{"raw":"*"}"#, ".raw", "must be base64"),
        (r#"{"raw":"hunter2 "}"#, ".raw", "must be base64"),
        (r#"{"raw":"AQ=D"}"#, ".raw", "must be base64"),
        (r#"{"raw":"A"}"#, ".raw", "must be base64"),
        (r#"{"raw":[1,2]}"#, ".raw", "must be a string of base64"),
        (r#"{"text":"","metadata":[]}"#, ".metadata", OBJECT),
        (r#"{"text":"","filename":5}"#, ".filename", STRING),
        (r#"{"text":"","mediaType":{}}"#, ".mediaType", STRING),
        (r#"{"file":{"bytes":"","uri":""}}"#, ".file", ONE_FILE),
        (r#"{"file":{}}"#, ".file", ONE_FILE),
        (r#"{"file":{"bytes":"*"}}"#, ".file.bytes", "must be base64"),
        ("[]", "", OBJECT),
        (r#""hunter2""#, "", OBJECT),
    ];
    for (part, below, rule) in rows {
        let field = format!("message.parts[1]{below}");
        let params = |parts: &str, role: &str| {
            format!(
                r#"{{"message":{{"messageId":"m","role":"{role}","{parts}":[{{"text":""}},{part}]}}}}"#
            )
        };
        let new = params("parts", "ROLE_USER");
        let old = params("parts", "user");
        let proto = params("content", "ROLE_USER");
        refuse(
            Version::V1,
            &[
                ("SendMessage", &new, &field, rule),
                ("POST /message:send", &new, &field, rule),
            ],
        );
        let old = [
            ("message/send", &*old, &*field, rule),
            ("tasks/send", &*old, &*field, rule),
        ];
        refuse(Version::V03, &old);
        let field = field.replace("parts", "content");
        refuse(
            Version::V03,
            &[("POST /v1/message:send", &*proto, &*field, rule)],
        );
    }
}

#[test]
fn a_part_of_0_3_has_one_file_and_a_kind_that_is_a_name() {
    let rows: [(&str, &str, &str); 8] = [
        (
            r#"{"kind":"file","file":{"bytes":"AQID","uri":"u"}}"#,
            ".file",
            ONE_FILE,
        ),
        (r#"{"kind":"file","file":{"name":"n"}}"#, ".file", ONE_FILE),
        (r#"{"kind":"file","file":"hunter2"}"#, ".file", OBJECT),
        (r#"{"kind":"file"}"#, "", ONE_CONTENT),
        (r#"{"kind":"text"}"#, "", ONE_CONTENT),
        (r#"{"kind":"data"}"#, "", ONE_CONTENT),
        (r#"{"kind":5,"text":""}"#, ".kind", STRING),
        (
            r#"{"kind":"tool-result","metadata":[]}"#,
            ".metadata",
            OBJECT,
        ),
    ];
    for (part, below, rule) in rows {
        let params = format!(r#"{{"message":{{"messageId":"m","role":"user","parts":[{part}]}}}}"#);
        let field = format!("message.parts[0]{below}");
        refuse(Version::V03, &[("message/send", &params, &field, rule)]);
    }
}

#[test]
fn s62_duplicate_members_are_refused_under_every_alias() {
    refuse(
        Version::V1,
        &[
            (
                "SendMessage",
                r#"{"message":{},"message":{}}"#,
                "message",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"messageId":"a","messageId":"b"}}"#,
                "message.messageId",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"messageId":"a","message_id":"b"}}"#,
                "message.messageId",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"task_id":"a","taskId":"b"}}"#,
                "message.taskId",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"contextId":null,"contextId":"b"}}"#,
                "message.contextId",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"parts":[],"parts":[]}}"#,
                "message.parts",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"parts":[{"text":"a","text":"b"}]}}"#,
                "message.parts[0].text",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"parts":[{"text":null,"text":"b"}]}}"#,
                "message.parts[0].text",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"parts":[{"data":1,"data":1}]}}"#,
                "message.parts[0].data",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"parts":[{"url":"u","mediaType":"a","mimeType":"b"}]}}"#,
                "message.parts[0].mediaType",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"message":{"parts":[{"url":"u","filename":"a","name":"b"}]}}"#,
                "message.parts[0].filename",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"configuration":{"historyLength":1,"history_length":2}}"#,
                "configuration.historyLength",
                ONCE,
            ),
            (
                "SendMessage",
                r#"{"configuration":{"pushNotificationConfig":{},"taskPushNotificationConfig":{}}}"#,
                "configuration.taskPushNotificationConfig",
                ONCE,
            ),
            ("GetTask", r#"{"id":"a","id":"b"}"#, "id", ONCE),
            ("GetTask", r#"{"id":"a","\u0069d":"b"}"#, "id", ONCE),
            (
                "ListTasks",
                r#"{"pageSize":1,"page_size":1}"#,
                "pageSize",
                ONCE,
            ),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"url":"a","url":"b"}"#,
                "url",
                ONCE,
            ),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"taskId":"a","task_id":"b"}"#,
                "taskId",
                ONCE,
            ),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"config":{},"pushNotificationConfig":{}}"#,
                "config",
                ONCE,
            ),
            ("GET /tasks?pageSize=1&pageSize=1", "", "pageSize", ONCE),
            ("GET /tasks?pageSize=1&page_size=2", "", "pageSize", ONCE),
            (
                "GET /tasks/t?historyLength=1&historyLength=2",
                "",
                "historyLength",
                ONCE,
            ),
        ],
    );
    refuse(
        Version::V03,
        &[
            (
                "message/send",
                r#"{"message":{},"request":{}}"#,
                "message",
                ONCE,
            ),
            (
                "message/send",
                r#"{"message":{"parts":[],"content":[]}}"#,
                "message.parts",
                ONCE,
            ),
            (
                "message/send",
                r#"{"message":{"kind":"message","kind":"message"}}"#,
                "message.kind",
                ONCE,
            ),
            (
                "message/send",
                r#"{"message":{"parts":[{"kind":"text","kind":"text","text":""}]}}"#,
                "message.parts[0].kind",
                ONCE,
            ),
            (
                "message/send",
                r#"{"message":{"parts":[{"kind":"text","text":"a","text":"b"}]}}"#,
                "message.parts[0].text",
                ONCE,
            ),
            (
                "message/send",
                r#"{"message":{"parts":[{"kind":"text","text":null,"text":"b"}]}}"#,
                "message.parts[0].text",
                ONCE,
            ),
            (
                "message/send",
                r#"{"message":{"parts":[{"kind":"tool-use","metadata":{},"metadata":{}}]}}"#,
                "message.parts[0].metadata",
                ONCE,
            ),
            (
                "message/send",
                r#"{"message":{"parts":[{"kind":"file","file":{"bytes":"","data":""}}]}}"#,
                "message.parts[0].file.bytes",
                ONCE,
            ),
            ("tasks/get", r#"{"id":"a","id":"b"}"#, "id", ONCE),
            (
                "GET /v1/tasks/t?historyLength=1&history_length=2",
                "",
                "historyLength",
                ONCE,
            ),
        ],
    );
    // Unknown members are ignored, even if duplicated.
    accept(&[
        ("GetTask", r#"{"id":"a","x":1,"x":2}"#),
        ("GET /tasks/t?x=1&x=2", ""),
    ]);
}

#[test]
fn s62_nesting_is_bounded_before_parsing() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let parts = |levels| {
        format!(
            r#"{{"message":{{"messageId":"m","role":"user","parts":[{{"data":{}}}]}}}}"#,
            deep(levels)
        )
    };
    let rpc = |levels| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}}"#,
            parts(levels)
        )
    };
    assert!(read_body(rpc(123).as_bytes()).1.is_ok());
    let (id, read) = read_body(rpc(124).as_bytes());
    let error = read.unwrap_err();
    assert_eq!((id.as_str(), error.kind()), ("null", ErrorKind::Parse));
    assert_eq!(
        error.message(),
        "Invalid JSON payload: nested deeper than 128 levels"
    );
    for line in [
        "POST /message:send",
        "POST /v1/message:send",
        "POST /tasks/t:cancel",
        "POST /v1/tasks/t:cancel",
    ] {
        let error = read_rest(line, &parts(125)).unwrap_err();
        let v1 = http_status(error.kind(), Version::V1);
        let v03 = http_status(error.kind(), Version::V03);
        assert_eq!(
            (jsonrpc_code(error.kind()), v1, v03),
            (-32700, 400, 400),
            "{line}"
        );
    }
    assert!(read_rest("POST /message:send", &parts(124)).is_ok());
}

#[test]
fn a_rest_body_that_is_not_json_is_a_parse_error() {
    for line in [
        "POST /message:send",
        "POST /message:stream",
        "POST /tasks/t:cancel",
        "POST /tasks/t:subscribe",
        "POST /tasks/t/pushNotificationConfigs",
        "POST /v1/message:send",
        "POST /v1/message:stream",
        "POST /v1/tasks/t:cancel",
        "POST /v1/tasks/t:subscribe",
        "POST /v1/tasks/t/pushNotificationConfigs",
    ] {
        for body in ["{", "{\"a\":1,}", "hunter2", "{} {}"] {
            let error = read_rest(line, body).unwrap_err();
            assert_eq!(
                (jsonrpc_code(error.kind()), error.message()),
                (-32700, "Invalid JSON payload"),
                "{line} {body}"
            );
        }
    }
}

#[test]
fn s62_parts_are_bounded_in_number() {
    let params = |count: usize, role: &str| {
        let parts = vec![r#"{"text":""}"#; count].join(",");
        format!(r#"{{"message":{{"messageId":"m","role":"{role}","parts":[{parts}]}}}}"#)
    };
    accept(&[
        ("SendMessage", &params(1000, "ROLE_USER")),
        ("message/send", &params(1000, "user")),
    ]);
    let rule = "must contain at most 1000 elements (max_parts)";
    let new = params(1001, "ROLE_USER");
    let old = params(1001, "user");
    refuse(
        Version::V1,
        &[
            ("SendMessage", &new, "message.parts", rule),
            ("POST /message:stream", &new, "message.parts", rule),
        ],
    );
    refuse(
        Version::V03,
        &[
            ("message/stream", &old, "message.parts", rule),
            ("tasks/send", &old, "message.parts", rule),
            ("POST /v1/message:send", &old, "message.parts", rule),
        ],
    );
}

#[test]
fn s66_numbers_are_whole_and_within_their_bounds() {
    let message = r#""message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":""}]}"#;
    let send =
        |length: &str| format!(r#"{{{message},"configuration":{{"historyLength":{length}}}}}"#);
    for (bad, rule) in [
        ("-1", NOT_NEGATIVE),
        ("\"-1\"", NOT_NEGATIVE),
        ("-2147483648", NOT_NEGATIVE),
        ("2147483648", INT32),
        ("-2147483649", INT32),
        ("1e300", INT32),
        ("1.5", INT32),
        ("\"1.5\"", INT32),
        ("\"hunter2\"", INT32),
        ("\"\"", INT32),
        ("\"NaN\"", INT32),
        ("true", INT32),
        ("[1]", INT32),
        ("{}", INT32),
    ] {
        let field = "configuration.historyLength";
        let get = format!(r#"{{"id":"t","historyLength":{bad}}}"#);
        refuse(
            Version::V1,
            &[
                ("SendMessage", &send(bad), field, rule),
                ("SendStreamingMessage", &send(bad), field, rule),
                ("POST /message:send", &send(bad), field, rule),
                ("GetTask", &get, "historyLength", rule),
                ("ListTasks", &get, "historyLength", rule),
            ],
        );
        refuse(
            Version::V03,
            &[
                ("message/send", &send(bad), field, rule),
                ("message/stream", &send(bad), field, rule),
                ("POST /v1/message:send", &send(bad), field, rule),
                ("tasks/get", &get, "historyLength", rule),
            ],
        );
    }
    for (bad, rule) in [
        ("-1", NOT_NEGATIVE),
        ("2147483648", INT32),
        ("1.5", INT32),
        ("NaN", INT32),
        ("hunter2", INT32),
        ("0x10", INT32),
        ("%201", INT32),
    ] {
        let [v1, v03, list] = [
            "tasks/t?historyLength",
            "v1/tasks/t?historyLength",
            "tasks?historyLength",
        ]
        .map(|path| format!("GET /{path}={bad}"));
        refuse(
            Version::V1,
            &[
                (&v1, "", "historyLength", rule),
                (&list, "", "historyLength", rule),
            ],
        );
        refuse(Version::V03, &[(&v03, "", "historyLength", rule)]);
    }
    accept(&[
        ("GetTask", r#"{"id":"t","historyLength":"5"}"#),
        ("GetTask", r#"{"id":"t","historyLength":2147483647.0}"#),
    ]);
}

#[test]
fn s66_pages_have_a_size_from_1_to_100() {
    let range = "must be between 1 and 100";
    accept(&[
        ("ListTasks", r#"{"pageSize":1}"#),
        ("ListTasks", r#"{"pageSize":100}"#),
        ("ListTasks", "{}"),
    ]);
    refuse(
        Version::V1,
        &[
            ("ListTasks", r#"{"pageSize":0}"#, "pageSize", range),
            ("ListTasks", r#"{"pageSize":-1}"#, "pageSize", range),
            ("ListTasks", r#"{"pageSize":101}"#, "pageSize", range),
            ("ListTasks", r#"{"pageSize":2147483648}"#, "pageSize", INT32),
            ("ListTasks", r#"{"pageSize":"ten"}"#, "pageSize", INT32),
            ("ListTasks", r#"{"pageToken":5}"#, "pageToken", STRING),
            ("GET /tasks?pageSize=0", "", "pageSize", range),
            ("GET /tasks?pageSize=-1", "", "pageSize", range),
            ("GET /tasks?pageSize=101", "", "pageSize", range),
            ("GET /tasks?pageSize=ten", "", "pageSize", INT32),
            ("GET /brest/tasks?page_size=0", "", "pageSize", range),
            (
                "ListTaskPushNotificationConfigs",
                r#"{"taskId":"t","pageSize":-1}"#,
                "pageSize",
                NOT_NEGATIVE,
            ),
            (
                "GET /tasks/t/pushNotificationConfigs?pageSize=-1",
                "",
                "pageSize",
                NOT_NEGATIVE,
            ),
            (
                "GET /tasks/t/pushNotificationConfigs?pageSize=x",
                "",
                "pageSize",
                INT32,
            ),
        ],
    );
    refuse(
        Version::V03,
        &[("tasks/list", r#"{"pageSize":0}"#, "pageSize", range)],
    );
}

#[test]
fn list_filters_are_validated() {
    accept(&[
        (
            "ListTasks",
            r#"{"status":"TASK_STATE_UNSPECIFIED","contextId":"","pageToken":""}"#,
        ),
        (
            "ListTasks",
            r#"{"statusTimestampAfter":"2026-03-14T09:00:00+01:00","status":2}"#,
        ),
        (
            "GET /tasks?status=&statusTimestampAfter=2026-03-14T09:00:00%2B01:00&includeArtifacts=false",
            "",
        ),
    ]);
    refuse(
        Version::V1,
        &[
            ("ListTasks", r#"{"status":"hunter2"}"#, "status", STATE),
            ("ListTasks", r#"{"status":""}"#, "status", STATE),
            ("ListTasks", r#"{"status":9}"#, "status", STATE),
            ("ListTasks", r#"{"status":-1}"#, "status", STATE),
            (
                "ListTasks",
                r#"{"status":["TASK_STATE_WORKING"]}"#,
                "status",
                STATE,
            ),
            (
                "ListTasks",
                r#"{"statusTimestampAfter":"2026-03-14T09:00:00"}"#,
                "statusTimestampAfter",
                TIME,
            ),
            (
                "ListTasks",
                r#"{"statusTimestampAfter":"2026-03-14"}"#,
                "statusTimestampAfter",
                TIME,
            ),
            (
                "ListTasks",
                r#"{"statusTimestampAfter":"hunter2"}"#,
                "statusTimestampAfter",
                TIME,
            ),
            (
                "ListTasks",
                r#"{"statusTimestampAfter":""}"#,
                "statusTimestampAfter",
                TIME,
            ),
            (
                "ListTasks",
                r#"{"statusTimestampAfter":1773478800}"#,
                "statusTimestampAfter",
                STRING,
            ),
            (
                "ListTasks",
                r#"{"includeArtifacts":"true"}"#,
                "includeArtifacts",
                FLAG,
            ),
            ("ListTasks", r#"{"contextId":5}"#, "contextId", STRING),
            ("GET /tasks?status=hunter2", "", "status", STATE),
            (
                "GET /tasks?statusTimestampAfter=2026-03-14T09:00:00",
                "",
                "statusTimestampAfter",
                TIME,
            ),
            (
                "GET /tasks?statusTimestampAfter=2026-03-14T09:00:00+01:00",
                "",
                "statusTimestampAfter",
                TIME,
            ),
            (
                "GET /tasks?includeArtifacts=TRUE",
                "",
                "includeArtifacts",
                FLAG,
            ),
            (
                "GET /tasks?includeArtifacts=1",
                "",
                "includeArtifacts",
                FLAG,
            ),
        ],
    );
}

#[test]
fn ids_are_short_and_have_no_control_characters() {
    let longest = "é".repeat(128);
    let long = "x".repeat(257);
    accept(&[
        ("GetTask", &format!(r#"{{"id":"{longest}"}}"#)),
        ("GET /tasks/a%3Ab%20c%2Fd", ""),
        ("tasks/get", r#"{"id":"lang:graph:7"}"#),
    ]);
    for (id, rule) in [
        (long.as_str(), TOO_LONG),
        ("a\\nb", CONTROL),
        ("\\u0000", CONTROL),
        ("\\u0085", CONTROL),
    ] {
        let only_id = format!(r#"{{"id":"{id}"}}"#);
        let task = format!(r#"{{"taskId":"{id}"}}"#);
        let context = format!(r#"{{"contextId":"{id}"}}"#);
        let both = format!(r#"{{"taskId":"t","id":"{id}"}}"#);
        let config = format!(r#"{{"taskId":"t","id":"{id}","url":"https://c.example"}}"#);
        let send = |member: &str| {
            format!(
                r#"{{"message":{{"messageId":"m","role":"user","parts":[{{"text":""}}],{member}}}}}"#
            )
        };
        let message_id = format!(r#"{{"message":{{"messageId":"{id}"}}}}"#);
        let [in_task, in_context, refers] = [
            send(&format!(r#""taskId":"{id}""#)),
            send(&format!(r#""contextId":"{id}""#)),
            send(&format!(r#""referenceTaskIds":["t","{id}"]"#)),
        ];
        refuse(
            Version::V1,
            &[
                ("GetTask", &only_id, "id", rule),
                ("CancelTask", &only_id, "id", rule),
                ("SubscribeToTask", &only_id, "id", rule),
                ("ListTasks", &context, "contextId", rule),
                ("GetTaskPushNotificationConfig", &task, "taskId", rule),
                ("GetTaskPushNotificationConfig", &both, "id", rule),
                ("ListTaskPushNotificationConfigs", &task, "taskId", rule),
                ("DeleteTaskPushNotificationConfig", &both, "id", rule),
                ("CreateTaskPushNotificationConfig", &config, "id", rule),
                ("SendMessage", &message_id, "message.messageId", rule),
                ("SendMessage", &in_task, "message.taskId", rule),
                ("SendMessage", &in_context, "message.contextId", rule),
                ("SendMessage", &refers, "message.referenceTaskIds[1]", rule),
                ("POST /message:send", &in_task, "message.taskId", rule),
            ],
        );
        refuse(
            Version::V03,
            &[
                ("tasks/get", &only_id, "id", rule),
                ("tasks/cancel", &only_id, "id", rule),
                ("tasks/resubscribe", &only_id, "id", rule),
                ("message/send", &message_id, "message.messageId", rule),
                ("message/send", &in_task, "message.taskId", rule),
                ("message/stream", &in_context, "message.contextId", rule),
                (
                    "POST /v1/message:send",
                    &in_context,
                    "message.contextId",
                    rule,
                ),
            ],
        );
    }
    let path = |tail: &str| format!("GET /tasks/{long}{tail}");
    refuse(
        Version::V1,
        &[
            (&path(""), "", "id", TOO_LONG),
            (&path("/pushNotificationConfigs"), "", "taskId", TOO_LONG),
            (
                &format!("GET /tasks/t/pushNotificationConfigs/{long}"),
                "",
                "id",
                TOO_LONG,
            ),
            ("GET /tasks/a%0Ab", "", "id", CONTROL),
            ("POST /tasks/a%00:cancel", "", "id", CONTROL),
            ("GET /tasks?contextId=a%0Db", "", "contextId", CONTROL),
        ],
    );
    refuse(
        Version::V03,
        &[
            ("GET /v1/tasks/a%0Ab", "", "id", CONTROL),
            ("POST /v1/tasks/a%7F:cancel", "", "id", CONTROL),
        ],
    );
}

#[test]
fn required_ids_are_validated() {
    refuse(
        Version::V1,
        &[
            ("GetTask", "{}", "id", NOT_EMPTY),
            ("GetTask", r#"{"id":""}"#, "id", NOT_EMPTY),
            ("GetTask", r#"{"id":null}"#, "id", NOT_EMPTY),
            ("GetTask", r#"{"id":7}"#, "id", STRING),
            ("CancelTask", "{}", "id", NOT_EMPTY),
            (
                "CancelTask",
                r#"{"id":"t","metadata":[]}"#,
                "metadata",
                OBJECT,
            ),
            ("SubscribeToTask", "{}", "id", NOT_EMPTY),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"url":"https://c.example"}"#,
                "taskId",
                NOT_EMPTY,
            ),
            (
                "GetTaskPushNotificationConfig",
                r#"{"id":"c"}"#,
                "taskId",
                NOT_EMPTY,
            ),
            (
                "GetTaskPushNotificationConfig",
                r#"{"taskId":"t"}"#,
                "id",
                NOT_EMPTY,
            ),
            ("ListTaskPushNotificationConfigs", "{}", "taskId", NOT_EMPTY),
            (
                "DeleteTaskPushNotificationConfig",
                r#"{"id":"c"}"#,
                "taskId",
                NOT_EMPTY,
            ),
            (
                "DeleteTaskPushNotificationConfig",
                r#"{"taskId":"t"}"#,
                "id",
                NOT_EMPTY,
            ),
            ("GetExtendedAgentCard", r#"{"tenant":[]}"#, "tenant", STRING),
        ],
    );
    // 0.3 stores one push configuration per task by default, so its id is optional in a read.
    accept(&[
        ("tasks/pushNotificationConfig/get", r#"{"id":"t"}"#),
        ("tasks/pushNotification/get", r#"{"id":"t"}"#),
    ]);
    refuse(
        Version::V03,
        &[
            ("tasks/get", "{}", "id", NOT_EMPTY),
            ("tasks/get", r#"{"id":""}"#, "id", NOT_EMPTY),
            ("tasks/get", r#"{"id":[]}"#, "id", STRING),
            ("tasks/cancel", "{}", "id", NOT_EMPTY),
            (
                "tasks/cancel",
                r#"{"id":"t","metadata":"hunter2"}"#,
                "metadata",
                OBJECT,
            ),
            ("tasks/resubscribe", "{}", "id", NOT_EMPTY),
            ("tasks/subscribe", "{}", "id", NOT_EMPTY),
            (
                "tasks/pushNotificationConfig/set",
                r#"{"pushNotificationConfig":{"url":"https://c.example"}}"#,
                "taskId",
                NOT_EMPTY,
            ),
            ("tasks/pushNotificationConfig/get", "{}", "id", NOT_EMPTY),
            ("tasks/pushNotificationConfig/list", "{}", "id", NOT_EMPTY),
            ("tasks/pushNotificationConfig/delete", "{}", "id", NOT_EMPTY),
            (
                "tasks/pushNotificationConfig/delete",
                r#"{"id":"t"}"#,
                "pushNotificationConfigId",
                NOT_EMPTY,
            ),
        ],
    );
}

#[test]
fn a_push_config_needs_a_url_and_a_scheme() {
    accept(&[
        (
            "CreateTaskPushNotificationConfig",
            r#"{"taskId":"t","url":"https://c.example","id":""}"#,
        ),
        (
            "POST /tasks/t/pushNotificationConfigs",
            r#"{"url":"https://c.example"}"#,
        ),
        (
            "POST /v1/tasks/t/pushNotificationConfigs",
            r#"{"url":"https://c.example"}"#,
        ),
    ]);
    let message = r#""message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":""}]}"#;
    let inline = format!(r#"{{{message},"configuration":{{"taskPushNotificationConfig":{{}}}}}}"#);
    let old_inline =
        format!(r#"{{{message},"configuration":{{"pushNotificationConfig":{{"token":"x"}}}}}}"#);
    let of_the_first_days =
        r#"{"id":"t","pushNotification":{},"message":{"role":"user","parts":[{"text":""}]}}"#;
    let nested = "configuration.taskPushNotificationConfig.url";
    refuse(
        Version::V1,
        &[
            (
                "CreateTaskPushNotificationConfig",
                r#"{"taskId":"t"}"#,
                "url",
                NOT_EMPTY,
            ),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"taskId":"t","url":5}"#,
                "url",
                STRING,
            ),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"taskId":"t","token":5}"#,
                "token",
                STRING,
            ),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"taskId":"t","url":"u","authentication":{"credentials":"hunter2"}}"#,
                "authentication.scheme",
                NOT_EMPTY,
            ),
            (
                "CreateTaskPushNotificationConfig",
                r#"{"taskId":"t","url":"u","authentication":"hunter2"}"#,
                "authentication",
                OBJECT,
            ),
            (
                "SetTaskPushNotificationConfig",
                r#"{"taskId":"t","config":[]}"#,
                "config",
                OBJECT,
            ),
            (
                "SetTaskPushNotificationConfig",
                r#"{"taskId":"t","config":{}}"#,
                "url",
                NOT_EMPTY,
            ),
            (
                "POST /tasks/t/pushNotificationConfigs",
                "",
                "url",
                NOT_EMPTY,
            ),
            ("SendMessage", &inline, nested, NOT_EMPTY),
            ("POST /message:send", &inline, nested, NOT_EMPTY),
        ],
    );
    refuse(
        Version::V03,
        &[
            (
                "tasks/pushNotificationConfig/set",
                r#"{"taskId":"t"}"#,
                "url",
                NOT_EMPTY,
            ),
            (
                "tasks/pushNotificationConfig/set",
                r#"{"taskId":"t","pushNotificationConfig":{"url":"u","authentication":{"schemes":[""]}}}"#,
                "authentication.scheme",
                NOT_EMPTY,
            ),
            (
                "tasks/pushNotificationConfig/set",
                r#"{"taskId":"t","pushNotificationConfig":{"url":"u","authentication":{"schemes":"Bearer"}}}"#,
                "pushNotificationConfig.authentication.schemes",
                ARRAY,
            ),
            (
                "POST /v1/tasks/t/pushNotificationConfigs",
                "{}",
                "url",
                NOT_EMPTY,
            ),
            ("message/send", &old_inline, nested, NOT_EMPTY),
            ("POST /v1/message:send", &old_inline, nested, NOT_EMPTY),
            ("tasks/send", of_the_first_days, nested, NOT_EMPTY),
        ],
    );
}

#[test]
fn s32_header_values_have_no_line_breaks() {
    for bad in ["a\\r\\nX-Evil: hunter2", "a\\nb", "\\u0000", "a\\u007f"] {
        let token = format!(r#""url":"u","token":"{bad}""#);
        let credentials = format!(
            r#""url":"u","authentication":{{"scheme":"Bearer","schemes":["Bearer"],"credentials":"{bad}"}}"#
        );
        let scheme = format!(r#""url":"u","authentication":{{"scheme":"{bad}"}}"#);
        let headers = format!(r#""url":"u","headers":{{"X-Custom":"{bad}"}}"#);
        let name = format!(r#""url":"u","headers":{{"{bad}":"x"}}"#);
        for (config, field) in [
            (&token, "token"),
            (&credentials, "authentication"),
            (&scheme, "authentication"),
        ] {
            let created = format!(r#"{{"taskId":"t",{config}}}"#);
            let sent = format!(
                r#"{{"message":{{"messageId":"m","role":1,"parts":[{{"text":""}}]}},"configuration":{{"taskPushNotificationConfig":{{{config}}}}}}}"#
            );
            let inline = format!("configuration.taskPushNotificationConfig.{field}");
            refuse(
                Version::V1,
                &[
                    ("CreateTaskPushNotificationConfig", &created, field, CONTROL),
                    (
                        "POST /tasks/t/pushNotificationConfigs",
                        &created,
                        field,
                        CONTROL,
                    ),
                    ("SendMessage", &sent, &inline, CONTROL),
                    ("POST /message:stream", &sent, &inline, CONTROL),
                ],
            );
        }
        for (config, field) in [
            (&token, "token"),
            (&credentials, "authentication"),
            (&scheme, "authentication"),
            (&headers, "headers"),
            (&name, "headers"),
        ] {
            let set = format!(r#"{{"taskId":"t","pushNotificationConfig":{{{config}}}}}"#);
            let first = format!(r#"{{"id":"t","pushNotificationConfig":{{{config}}}}}"#);
            let sent = format!(
                r#"{{"message":{{"messageId":"m","role":"user","parts":[{{"text":""}}]}},"configuration":{{"pushNotificationConfig":{{{config}}}}}}}"#
            );
            let inline = format!("configuration.taskPushNotificationConfig.{field}");
            refuse(
                Version::V03,
                &[
                    ("tasks/pushNotificationConfig/set", &set, field, CONTROL),
                    ("tasks/pushNotification/set", &first, field, CONTROL),
                    (
                        "POST /v1/tasks/t/pushNotificationConfigs",
                        &set,
                        field,
                        CONTROL,
                    ),
                    ("message/send", &sent, &inline, CONTROL),
                ],
            );
        }
    }
}

#[test]
fn s83_path_and_body_must_agree() {
    let message = r#""message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":""}]}"#;
    let tenant = |tenant: &str| format!(r#"{{"tenant":"{tenant}",{message}}}"#);
    accept(&[
        ("POST /brest/message:send", &tenant("brest")),
        ("POST /brest/message:send", &tenant("")),
        ("POST /message:send", &tenant("brest")),
        ("POST /tasks/t:cancel", r#"{"id":"t"}"#),
        (
            "POST /tasks/t/pushNotificationConfigs",
            r#"{"taskId":"t","url":"u"}"#,
        ),
        ("GET /brest/tasks/t?tenant=brest", ""),
        ("POST /v1/tasks/t:cancel", r#"{"name":"tasks/t"}"#),
        (
            "POST /v1/tasks/t/pushNotificationConfigs",
            r#"{"parent":"tasks/t","config":{"pushNotificationConfig":{"url":"u"}}}"#,
        ),
    ]);
    refuse(
        Version::V1,
        &[
            (
                "POST /brest/message:send",
                &tenant("hunter2"),
                "tenant",
                MISMATCH,
            ),
            (
                "POST /brest/message:stream",
                &tenant("Brest"),
                "tenant",
                MISMATCH,
            ),
            (
                "POST /brest/tasks/t:cancel",
                r#"{"tenant":"x"}"#,
                "tenant",
                MISMATCH,
            ),
            (
                "POST /brest/tasks/t:subscribe",
                r#"{"tenant":"x"}"#,
                "tenant",
                MISMATCH,
            ),
            (
                "POST /brest/tasks/t/pushNotificationConfigs",
                r#"{"tenant":"x","url":"u"}"#,
                "tenant",
                MISMATCH,
            ),
            ("GET /brest/tasks?tenant=x", "", "tenant", MISMATCH),
            ("GET /brest/tasks/t?tenant=x", "", "tenant", MISMATCH),
            (
                "GET /brest/extendedAgentCard?tenant=x",
                "",
                "tenant",
                MISMATCH,
            ),
            (
                "GET /brest/tasks/t:subscribe?tenant=x",
                "",
                "tenant",
                MISMATCH,
            ),
            (
                "GET /brest/tasks/t/pushNotificationConfigs?tenant=x",
                "",
                "tenant",
                MISMATCH,
            ),
            (
                "GET /brest/tasks/t/pushNotificationConfigs/c?tenant=x",
                "",
                "tenant",
                MISMATCH,
            ),
            (
                "DELETE /brest/tasks/t/pushNotificationConfigs/c?tenant=x",
                "",
                "tenant",
                MISMATCH,
            ),
            ("GET /tasks?tenant=a&tenant=b", "", "tenant", ONCE),
            (
                "POST /tasks/t:cancel",
                r#"{"id":"hunter2"}"#,
                "id",
                MISMATCH,
            ),
            ("POST /tasks/t:subscribe", r#"{"id":"T"}"#, "id", MISMATCH),
            (
                "POST /tasks/t/pushNotificationConfigs",
                r#"{"taskId":"x","url":"u"}"#,
                "taskId",
                MISMATCH,
            ),
            (
                "POST /tasks/t/pushNotificationConfigs",
                r#"{"taskId":"x","config":{"url":"u"}}"#,
                "taskId",
                MISMATCH,
            ),
            ("POST /tasks/t:cancel", "[]", "", OBJECT),
            (
                "POST /tasks/t:cancel",
                r#"{"metadata":5}"#,
                "metadata",
                OBJECT,
            ),
        ],
    );
    let task_name = "must be tasks/{id}";
    let config_name = "must be tasks/{id}/pushNotificationConfigs/{id}";
    refuse(
        Version::V03,
        &[
            (
                "POST /v1/tasks/t:cancel",
                r#"{"name":"tasks/x"}"#,
                "name",
                MISMATCH,
            ),
            ("POST /v1/tasks/t:cancel", r#"{"id":"x"}"#, "id", MISMATCH),
            (
                "POST /v1/tasks/t:subscribe",
                r#"{"name":"tasks/x"}"#,
                "name",
                MISMATCH,
            ),
            (
                "POST /v1/tasks/t:cancel",
                r#"{"name":"jobs/hunter2"}"#,
                "name",
                task_name,
            ),
            (
                "POST /v1/tasks/t:cancel",
                r#"{"name":"tasks/"}"#,
                "name",
                task_name,
            ),
            (
                "POST /v1/tasks/t:cancel",
                r#"{"name":"t"}"#,
                "name",
                task_name,
            ),
            ("POST /v1/tasks/t:cancel", r#"{"name":5}"#, "name", STRING),
            (
                "POST /v1/tasks/t/pushNotificationConfigs",
                r#"{"parent":"tasks/x","config":{"pushNotificationConfig":{"url":"u"}}}"#,
                "parent",
                MISMATCH,
            ),
            (
                "POST /v1/tasks/t/pushNotificationConfigs",
                r#"{"parent":"hunter2","config":{"pushNotificationConfig":{"url":"u"}}}"#,
                "parent",
                task_name,
            ),
            (
                "POST /v1/tasks/t/pushNotificationConfigs",
                r#"{"configId":"a","config":{"pushNotificationConfig":{"id":"b","url":"u"}}}"#,
                "configId",
                "does not match the config",
            ),
            (
                "POST /v1/tasks/t/pushNotificationConfigs",
                r#"{"config":{"name":"tasks/x/pushNotificationConfigs/c","pushNotificationConfig":{"url":"u"}}}"#,
                "config.name",
                MISMATCH,
            ),
            (
                "POST /v1/tasks/t/pushNotificationConfigs",
                r#"{"config":{"name":"hunter2","pushNotificationConfig":{"url":"u"}}}"#,
                "config.name",
                config_name,
            ),
            (
                "POST /v1/tasks/t/pushNotificationConfigs",
                r#"{"taskId":"x","pushNotificationConfig":{"url":"u"}}"#,
                "taskId",
                MISMATCH,
            ),
        ],
    );
}
