//! Golden files: every file in `tests/golden` is a test case without further code.

use std::path::Path;

use attache::model::{Request, StreamResponse, Version};
use attache::wire::card::{CardForm, read_card, write_card};
use attache::wire::errors::{
    JsonRpcError, RestError, http_status, jsonrpc_code, read_jsonrpc_error, read_rest_error,
};
use attache::wire::method::{JsonRpcMethod, find_method, method_name};
use attache::wire::negotiation::{RequestedVersion, negotiate};
use attache::wire::path::{RestRoute, route};
use attache::wire::{self, Dialect, jsonrpc, sse};
use serde_json::{Value, json};

#[test]
fn golden_files_round_trip() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    assert!(files.len() >= 98, "only {} golden files", files.len());
    let mut faults = Vec::new();
    for path in &files {
        let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let checked = std::panic::catch_unwind(|| check(&golden));
        let checked = checked.unwrap_or_else(|_| Err("panicked, see above".to_owned()));
        if let Err(fault) = checked {
            faults.push(format!("{}: {fault}", golden["id"].as_str().unwrap_or("?")));
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {} files:\n{}",
        faults.len(),
        files.len(),
        faults.join("\n")
    );
}

type Checked = Result<(), String>;

fn check(golden: &Value) -> Checked {
    if golden["version"] == "dialect" {
        return check_accept(golden);
    }
    match golden["binding"].as_str() {
        Some("JSONRPC") => check_jsonrpc(golden),
        Some("HTTP+JSON") => check_rest(golden),
        Some("webhook") => check_webhook(golden),
        Some("discovery") => check_card(golden),
        Some("conversion") => check_pair(golden),
        // Checked by `golden_grpc.rs`.
        Some("GRPC") => Ok(()),
        other => Err(format!("a binding this test does not know: {other:?}")),
    }
}

fn equal(what: &str, ours: &[u8], golden: &Value) -> Checked {
    let ours: Value = serde_json::from_slice(ours)
        .map_err(|error| format!("{what}: we wrote no JSON: {error}"))?;
    if ours == *golden {
        Ok(())
    } else {
        Err(format!("{what}:\n  ours   {ours}\n  golden {golden}"))
    }
}

fn or_describe<T: std::fmt::Debug>(
    what: &str,
    result: Result<T, attache::Error>,
) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error:?}"))
}

fn headers<'a>(golden: &'a Value, wanted: &str) -> Vec<&'a str> {
    let headers = golden["request"]["headers"].as_object();
    let matching = headers
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
    matching.filter_map(|(_, value)| value.as_str()).collect()
}

fn check_jsonrpc(golden: &Value) -> Checked {
    let request = &golden["request"];
    let body = match request["rawBody"].as_str() {
        Some(raw) => raw.to_owned(),
        None => request["body"].to_string(),
    };
    let answer = &golden["response"]["body"];
    let call = match jsonrpc::read_request(body.as_bytes()) {
        Ok(call) => call,
        Err(refused) => return refusal(answer, &refused.id, &refused.error, Version::V03),
    };
    let method = match find_method(&call.method) {
        Ok(method) => method,
        Err(key) => {
            let error = attache::ErrorKind::MethodNotFound.into();
            return refusal(answer, &call.id, &error, key.version());
        }
    };
    let version = match negotiate(
        method.route_version,
        &RequestedVersion::parse(headers(golden, "a2a-version")),
        false,
    ) {
        Ok(version) => version,
        Err(no) => return refusal(answer, &call.id, &no.error, no.reply_version),
    };
    let (request, dialect) = or_describe("params", wire::read_params(method, call.params))?;
    let mut params = Vec::new();
    or_describe("params", wire::write_params(&mut params, &request, version))?;
    let golden_params = golden["request"]["body"]
        .get("params")
        .cloned()
        .unwrap_or(json!({}));
    equal("params", &params, &golden_params)?;
    check_violations(&request, &answer["error"]["data"])?;
    check_answer(golden, method, &dialect)
}

/// Checks a call that is rejected before its params are read: code, id and details match, the
/// message text may differ.
fn refusal(
    golden: &Value,
    id: &jsonrpc::JsonRpcId<'_>,
    error: &attache::Error,
    version: Version,
) -> Checked {
    let mut out = Vec::new();
    jsonrpc::write_error(&mut out, id, error, version);
    let mut ours: Value = serde_json::from_slice(&out).unwrap();
    ours["error"]["message"] = golden["error"]["message"].clone();
    equal("refusal", ours.to_string().as_bytes(), golden)
}

/// Checks that validation reports the violations of the golden response, for rules that need no
/// stored task.
fn check_violations(request: &Request, details: &Value) -> Checked {
    let golden = details
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|detail| detail.get("fieldViolations"));
    // Rules that need a stored task are checked elsewhere.
    let needs_task =
        matches!(request, Request::SendMessage(send) if send.message.task_id.is_some());
    let error = match request.validate(&attache::model::Limits::default()) {
        Err(error) => error,
        Ok(()) if golden.is_none() || needs_task => return Ok(()),
        Ok(()) => {
            return Err(format!(
                "we take what the golden answer refuses: {golden:?}"
            ));
        }
    };
    let ours: Vec<Value> = error
        .violations()
        .iter()
        .map(
            |violation| json!({"field": violation.field(), "description": violation.description()}),
        )
        .collect();
    if Some(&json!(ours)) == golden {
        Ok(())
    } else {
        Err(format!("we refuse {ours:?}, the golden answer {golden:?}"))
    }
}

fn check_answer(golden: &Value, method: JsonRpcMethod, dialect: &Dialect) -> Checked {
    let response = &golden["response"];
    if let Some(events) = response["sse"].as_array() {
        let id = jsonrpc::read_request(golden["request"]["body"].to_string().as_bytes())
            .map(|call| call.id.into_owned())
            .map_err(|refused| format!("{:?}", refused.error))?;
        return check_stream(events, dialect, Some(&id));
    }
    let answer = response["body"].to_string();
    let read = or_describe("answer", jsonrpc::read_response(answer.as_bytes()))?;
    let mut out = Vec::new();
    match read.result {
        Ok(result) => {
            let response = or_describe(
                "result",
                wire::read_response(method.operation, result, dialect),
            )?;
            jsonrpc::begin_result(&mut out, &read.id);
            or_describe("result", wire::write_result(&mut out, &response, dialect))?;
            jsonrpc::end_result(&mut out);
        }
        Err(error) => jsonrpc::write_error(&mut out, &read.id, &error, dialect.version()),
    }
    equal("answer", &out, &response["body"])
}

/// Checks each event of a stream: frame, event name and envelope of the binding.
fn check_stream(
    events: &[Value],
    dialect: &Dialect,
    id: Option<&jsonrpc::JsonRpcId<'_>>,
) -> Checked {
    for (at, event) in events.iter().enumerate() {
        let data = &event["data"];
        let mut body = Vec::new();
        match (data.get("error"), id) {
            (Some(error), Some(id)) => {
                jsonrpc::write_error(
                    &mut body,
                    id,
                    &read_jsonrpc_error(&error.to_string()),
                    dialect.version(),
                );
            }
            (Some(_), None) => {
                wire::write_json(
                    &mut body,
                    &RestError(&read_rest_error(500, &data.to_string()), dialect.version()),
                );
            }
            (None, Some(id)) => {
                jsonrpc::begin_result(&mut body, id);
                write_back(&mut body, &data["result"], at + 1 == events.len(), dialect)?;
                jsonrpc::end_result(&mut body);
            }
            (None, None) => write_back(&mut body, data, at + 1 == events.len(), dialect)?,
        }
        equal("event", &body, data)?;
        check_frame(event, &body, dialect.version())?;
    }
    Ok(())
}

fn write_back(out: &mut Vec<u8>, event: &Value, last: bool, dialect: &Dialect) -> Checked {
    let read = or_describe("event", wire::read_event(&event.to_string(), dialect))?;
    wire::write_event(
        out,
        &read,
        last && matches!(read, StreamResponse::StatusUpdate(_)),
        dialect,
    );
    Ok(())
}

/// 01 §6: in 1.0 an error event has a name; other events have none.
fn check_frame(event: &Value, body: &[u8], version: Version) -> Checked {
    let mut frame = Vec::new();
    match (event["data"].get("error"), version) {
        (Some(_), Version::V1) => sse::write_error(&mut frame, body),
        _ => sse::write_event(&mut frame, None, body),
    }
    let mut decoder = sse::Decoder::default();
    decoder.push(&frame);
    let read = decoder
        .next()
        .ok_or("no frame")?
        .map_err(|error| format!("{error:?}"))?;
    match read.event.as_deref() == event["event"].as_str() {
        true => equal("frame", read.data.as_bytes(), &event["data"]),
        false => Err(format!(
            "the frame is named {:?}, the golden one {:?}",
            read.event, event["event"]
        )),
    }
}

fn check_rest(golden: &Value) -> Checked {
    let request = &golden["request"];
    let (path, query) = split_query(request["path"].as_str().unwrap());
    let http_method = request["httpMethod"].as_str().unwrap();
    let route = route(http_method, path).map_err(|no| format!("{no:?}"))?;
    let version = negotiate(
        route.route_version,
        &RequestedVersion::parse(headers(golden, "a2a-version")),
        false,
    )
    .map_err(|no| format!("{no:?}"))?;
    let body = request
        .get("body")
        .map(Value::to_string)
        .unwrap_or_default();
    let (read, dialect) = or_describe("request", wire::read_rest(&route, query, body.as_bytes()))?;
    check_rest_request(golden, &read, version)?;
    let response = &golden["response"];
    if let Some(events) = response["sse"].as_array() {
        return check_stream(events, &dialect, None);
    }
    check_rest_answer(response, &route, &dialect)
}

fn check_rest_request(golden: &Value, read: &Request, version: Version) -> Checked {
    let written = or_describe("request", wire::write_rest(read, version))?;
    let golden_path = golden["request"]["path"].as_str().unwrap();
    let ours = (
        split_query(&written.path).0,
        sorted(split_query(&written.path).1),
    );
    let theirs = (
        split_query(golden_path).0,
        sorted(split_query(golden_path).1),
    );
    if ours != theirs {
        return Err(format!("path: {ours:?} {theirs:?}"));
    }
    match (&written.body, golden["request"].get("body")) {
        (Some(body), Some(theirs)) => {
            let mut ours: Value = serde_json::from_slice(body).unwrap();
            // Values of the path may also be in the body.
            for (name, in_path) in [
                ("taskId", &golden["response"]["body"]["taskId"]),
                ("tenant", &json!("brest")),
            ] {
                if theirs.get(name).is_none() && ours.get(name) == Some(in_path) {
                    ours.as_object_mut().unwrap().remove(name);
                }
            }
            equal("body", ours.to_string().as_bytes(), theirs)
        }
        (None, Some(theirs)) => Err(format!("we write no body, the golden request has {theirs}")),
        // A request may repeat values of its path in the body.
        (_, None) => Ok(()),
    }
}

fn check_rest_answer(response: &Value, route: &RestRoute, dialect: &Dialect) -> Checked {
    let status = u16::try_from(response["status"].as_u64().unwrap()).unwrap();
    let body = response["body"].to_string();
    let mut out = Vec::new();
    if status < 400 {
        let read = or_describe(
            "answer",
            wire::read_response(route.operation, &body, dialect),
        )?;
        or_describe("answer", wire::write_body(&mut out, &read, dialect))?;
        return equal("answer", &out, &response["body"]);
    }
    let error = read_rest_error(status, &body);
    if http_status(error.kind(), dialect.version()) != status {
        return Err(format!("{:?} is not HTTP {status}", error.kind()));
    }
    wire::write_json(&mut out, &RestError(&error, dialect.version()));
    equal("error", &out, &response["body"])
}

fn split_query(path: &str) -> (&str, &str) {
    path.split_once('?').unwrap_or((path, ""))
}

fn sorted(query: &str) -> Vec<&str> {
    let mut parameters: Vec<_> = query.split('&').collect();
    parameters.sort_unstable();
    parameters
}

fn check_webhook(golden: &Value) -> Checked {
    let version = headers(golden, "a2a-version");
    let dialect = if version == ["0.3"] {
        Dialect::V03
    } else {
        Dialect::V1
    };
    let body = &golden["request"]["body"];
    let event = or_describe("body", wire::read_event(&body.to_string(), &dialect))?;
    let mut out = Vec::new();
    wire::write_event(&mut out, &event, false, &dialect);
    equal("body", &out, body)
}

fn check_card(golden: &Value) -> Checked {
    let form = match golden["version"].as_str() {
        Some("1.0") => CardForm::V1,
        Some("0.3") => CardForm::V03,
        Some("0.3+1.0") => CardForm::Union,
        Some(old) if old.starts_with("0.2") => CardForm::V02,
        other => return Err(format!("a card of version {other:?}")),
    };
    let body = &golden["response"]["body"];
    let card = or_describe("card", read_card(body.to_string().as_bytes()))?;
    let mut out = Vec::new();
    or_describe("card", write_card(&mut out, &card, form))?;
    equal("card", &out, body)
}

fn check_pair(golden: &Value) -> Checked {
    let v03 = &golden["v03"];
    let v10 = &golden["v10"];
    let both = golden["direction"] == "both";
    match golden["operation"].as_str().unwrap() {
        "Task" => pair_of_events(v03, &json!({ "task": v10 }), both),
        "Message" => pair_of_events(v03, &json!({ "message": v10 }), both),
        "TaskStatusUpdateEvent" => pair_of_events(v03, &json!({ "statusUpdate": v10 }), both),
        "TaskArtifactUpdateEvent" => pair_of_events(v03, &json!({ "artifactUpdate": v10 }), both),
        "TaskPushNotificationConfig" => {
            pair_of_params("tasks/pushNotificationConfig/set", v03, v10)
        }
        "SendMessageConfiguration" => {
            let params = |message: Value, configuration: &Value| json!({"message": message, "configuration": configuration});
            let old = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": ""}]});
            let new = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}]});
            pair_of_params("message/send", &params(old, v03), &params(new, v10))
        }
        "SecuritySchemes" => pair_of_schemes(v03, v10),
        other => Err(format!("a pair this test does not know: {other}")),
    }
}

fn pair_of_events(v03: &Value, v10: &Value, both: bool) -> Checked {
    let old = Dialect::V03;
    let new = Dialect::V1;
    let from_new = or_describe("1.0", wire::read_event(&v10.to_string(), &new))?;
    let closes = matches!(&from_new, StreamResponse::StatusUpdate(event) if event.status.state.is_terminal());
    let mut out = Vec::new();
    wire::write_event(&mut out, &from_new, closes, &old);
    equal("1.0 to 0.3", &out, v03)?;
    if both {
        let from_old = or_describe("0.3", wire::read_event(&v03.to_string(), &old))?;
        let mut out = Vec::new();
        wire::write_event(&mut out, &from_old, closes, &new);
        equal("0.3 to 1.0", &out, v10)?;
    }
    Ok(())
}

fn pair_of_params(old_name: &str, v03: &Value, v10: &Value) -> Checked {
    let old = find_method(old_name).unwrap();
    let new = find_method(method_name(old.operation, Version::V1).unwrap()).unwrap();
    for (method, read, version, written) in
        [(old, v03, Version::V1, v10), (new, v10, Version::V03, v03)]
    {
        let (request, _) = or_describe("params", wire::read_params(method, &read.to_string()))?;
        let mut out = Vec::new();
        or_describe("params", wire::write_params(&mut out, &request, version))?;
        equal(&format!("to {version}"), &out, written)?;
    }
    Ok(())
}

fn pair_of_schemes(v03: &Value, v10: &Value) -> Checked {
    for (schemes, form, written) in [(v03, CardForm::V1, v10), (v10, CardForm::V03, v03)] {
        let card =
            json!({ "url": "https://x", "protocolVersion": "0.3.0", "securitySchemes": schemes });
        let card = or_describe("card", read_card(card.to_string().as_bytes()))?;
        let mut out = Vec::new();
        or_describe("card", write_card(&mut out, &card, form))?;
        let ours: Value = serde_json::from_slice(&out).unwrap();
        equal(
            "schemes",
            ours["securitySchemes"].to_string().as_bytes(),
            written,
        )?;
    }
    Ok(())
}

/// Checks that an input dialect is read as its 1.0 equivalent.
fn check_accept(golden: &Value) -> Checked {
    let body = golden["input"].to_string();
    let call =
        jsonrpc::read_request(body.as_bytes()).map_err(|refused| format!("{:?}", refused.error))?;
    let method = find_method(&call.method).map_err(|key| format!("{key:?}"))?;
    let wanted = &golden["normalizedTo"];
    if method_name(method.operation, Version::V1) != wanted["method"].as_str() {
        return Err(format!("read as {:?}", method.operation));
    }
    let (request, _) = or_describe("params", wire::read_params(method, call.params))?;
    or_describe(
        "params",
        request.validate(&attache::model::Limits::default()),
    )?;
    let mut out = Vec::new();
    or_describe(
        "params",
        wire::write_params(&mut out, &request, Version::V1),
    )?;
    let mut ours: Value = serde_json::from_slice(&out).unwrap();
    blank_generated(&mut ours, &wanted["params"]);
    equal("normalised", ours.to_string().as_bytes(), &wanted["params"])
}

/// Replaces generated values: `<generated>` matches any non-empty value.
pub(crate) fn blank_generated(ours: &mut Value, wanted: &Value) {
    match (ours, wanted) {
        (Value::Object(ours), Value::Object(wanted)) => {
            for (name, value) in ours {
                wanted
                    .get(name)
                    .into_iter()
                    .for_each(|wanted| blank_generated(value, wanted));
            }
        }
        (Value::String(ours), Value::String(wanted))
            if wanted == "<generated>" && !ours.is_empty() =>
        {
            ours.clone_from(wanted);
        }
        _ => {}
    }
}

#[test]
fn error_codes_and_statuses_map_both_ways() {
    for kind in attache::ErrorKind::ALL {
        for version in Version::ALL {
            let error = attache::Error::new(kind);
            let mut out = Vec::new();
            wire::write_json(&mut out, &RestError(&error, version));
            let read = read_rest_error(
                http_status(kind, version),
                std::str::from_utf8(&out).unwrap(),
            );
            assert_eq!(
                jsonrpc_code(read.kind()),
                jsonrpc_code(kind),
                "{kind:?} {version} REST"
            );
            let mut out = Vec::new();
            wire::write_json(&mut out, &JsonRpcError(&error, Version::V1));
            let read = read_jsonrpc_error(std::str::from_utf8(&out).unwrap());
            assert_eq!(
                jsonrpc_code(read.kind()),
                jsonrpc_code(kind),
                "{kind:?} JSON-RPC"
            );
        }
    }
}
