//! Benchmark cases: a call that sends a message of 1 KiB, and a status event, read and written in both versions.

use std::hint::black_box;

use attache::model::Version;
use attache::wire::jsonrpc;
use attache::wire::method::find_method;
use attache::wire::{self, Dialect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::plain;

/// Operation implemented by this library and by plain `serde_json`. Each returns a value that depends on the whole input.
pub struct Case {
    pub name: &'static str,
    pub bytes: usize,
    pub plain: Box<dyn FnMut() -> usize>,
    pub ours: Box<dyn FnMut() -> usize>,
}

pub fn all() -> Vec<Case> {
    let [send_v1, send_v03] = [send(Version::V1), send(Version::V03)];
    let [event_v1, event_v03] = [event(Version::V1), event(Version::V03)];
    vec![
        read_call::<plain::SendV1>("read-send-1.0", &send_v1),
        write_call::<plain::SendV1>("write-send-1.0", &send_v1, Version::V1),
        read_event::<plain::EventV1>("read-status-1.0", &event_v1, Dialect::V1),
        write_event::<plain::EventV1>("write-status-1.0", &event_v1, Dialect::V1),
        read_call::<plain::SendV03>("read-send-0.3", &send_v03),
        write_call::<plain::SendV03>("write-send-0.3", &send_v03, Version::V03),
        read_event::<plain::EventV03>("read-status-0.3", &event_v03, Dialect::V03),
        write_event::<plain::EventV03>("write-status-0.3", &event_v03, Dialect::V03),
    ]
}

const TRACE: &str = r#"{"trace":"4bf92f3577b34da6a3ce929d0e0e4736","span":"00f067aa0ba902b7"}"#;
const IDS: &str = r#""contextId":"2f6c5d0e-8a3b-4a57-9c1e-7d5b4e3f2a10","taskId":"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d""#;

/// Returns a call of exactly 1 KiB, encoded by this library.
fn send(version: Version) -> String {
    let with = |text: &str| match version {
        Version::V1 => format!(
            r#"{{"jsonrpc":"2.0","id":"7b3dcb6d","method":"SendMessage","params":{{"message":{{"messageId":"16fd2706-8baf-433b-82eb-8c7fada847da","role":"ROLE_USER","parts":[{{"text":"{text}"}}],{IDS},"metadata":{TRACE}}},"configuration":{{"acceptedOutputModes":["text/plain","application/json"],"historyLength":10}},"metadata":{TRACE}}}}}"#
        ),
        Version::V03 => format!(
            r#"{{"jsonrpc":"2.0","id":"7b3dcb6d","method":"message/send","params":{{"message":{{"kind":"message","messageId":"16fd2706-8baf-433b-82eb-8c7fada847da","role":"user","parts":[{{"kind":"text","text":"{text}"}}],{IDS},"metadata":{TRACE}}},"configuration":{{"blocking":true,"historyLength":10,"acceptedOutputModes":["text/plain","application/json"]}},"metadata":{TRACE}}}}}"#
        ),
    };
    let sentence = r#"The harbour of Brest lies behind a narrow strait; tides run hard.\n"#;
    let room = 1024 - with("").len();
    let mut text = sentence.repeat(room / sentence.len());
    text.push_str(&"x".repeat(room - text.len()));
    with(&text)
}

/// Returns a status event with a sentence, encoded by this library.
fn event(version: Version) -> String {
    let text = "Reading the tide tables for the third week of March";
    match version {
        Version::V1 => format!(
            r#"{{"statusUpdate":{{"taskId":"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d","contextId":"2f6c5d0e-8a3b-4a57-9c1e-7d5b4e3f2a10","status":{{"state":"TASK_STATE_WORKING","message":{{"messageId":"16fd2706-8baf-433b-82eb-8c7fada847da","role":"ROLE_AGENT","parts":[{{"text":"{text}"}}],{IDS}}},"timestamp":"2026-03-14T09:26:53.589Z"}}}}}}"#
        ),
        Version::V03 => format!(
            r#"{{"kind":"status-update","taskId":"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d","contextId":"2f6c5d0e-8a3b-4a57-9c1e-7d5b4e3f2a10","status":{{"state":"working","message":{{"kind":"message","messageId":"16fd2706-8baf-433b-82eb-8c7fada847da","role":"agent","parts":[{{"kind":"text","text":"{text}"}}],{IDS}}},"timestamp":"2026-03-14T09:26:53.589Z"}},"final":false}}"#
        ),
    }
}

fn read_call<P: DeserializeOwned>(name: &'static str, body: &str) -> Case {
    let plain = body.to_owned();
    let ours = body.to_owned();
    Case {
        name,
        bytes: body.len(),
        plain: Box::new(move || {
            let call: plain::Call<P> =
                serde_json::from_slice(black_box(plain.as_bytes())).expect("a call");
            black_box(&call);
            size_of_val(&call)
        }),
        ours: Box::new(move || {
            let call = jsonrpc::read_request(black_box(ours.as_bytes())).expect("a call");
            let method = find_method(&call.method).expect("a method");
            let request = wire::read_params(method, call.params).expect("params");
            black_box((&call, &request));
            size_of_val(&request)
        }),
    }
}

fn write_call<P: Serialize + DeserializeOwned + 'static>(
    name: &'static str,
    body: &str,
    version: Version,
) -> Case {
    let plain: plain::Call<P> = serde_json::from_str(body).expect("a call");
    let call = jsonrpc::read_request(body.as_bytes()).expect("a call");
    let method = call.method.clone().into_owned();
    let id = call.id.into_owned();
    let (request, _) = wire::read_params(find_method(&call.method).expect("a method"), call.params)
        .expect("params");
    let write = move |out: &mut Vec<u8>| {
        jsonrpc::write_request(out, black_box(&id), black_box(&method), |out| {
            wire::write_params(out, black_box(&request), version).expect("params");
        });
    };
    written(name, body, plain, write)
}

fn read_event<E: DeserializeOwned>(name: &'static str, event: &str, dialect: Dialect) -> Case {
    let plain = event.to_owned();
    let ours = event.to_owned();
    Case {
        name,
        bytes: event.len(),
        plain: Box::new(move || {
            let event: E = serde_json::from_str(black_box(&plain)).expect("an event");
            black_box(&event);
            size_of_val(&event)
        }),
        ours: Box::new(move || {
            let event = wire::read_event(black_box(&ours), &dialect).expect("an event");
            black_box(&event);
            size_of_val(&event)
        }),
    }
}

fn write_event<E: Serialize + DeserializeOwned + 'static>(
    name: &'static str,
    event: &str,
    dialect: Dialect,
) -> Case {
    let plain: E = serde_json::from_str(event).expect("an event");
    let read = wire::read_event(event, &dialect).expect("an event");
    written(name, event, plain, move |out| {
        wire::write_event(out, black_box(&read), false, &dialect)
    })
}

/// Write case. Both sides write into a preallocated buffer and produce the bytes of the input.
fn written<P: Serialize + 'static>(
    name: &'static str,
    bytes: &str,
    value: P,
    mut write: impl FnMut(&mut Vec<u8>) + 'static,
) -> Case {
    let mut out = Vec::new();
    write(&mut out);
    assert_eq!(
        String::from_utf8_lossy(&out),
        bytes,
        "{name}: we write something else"
    );
    assert_eq!(
        serde_json::to_string(&value).expect("JSON"),
        bytes,
        "{name}: plain writes something else"
    );
    let mut plain_out = Vec::with_capacity(2048);
    let mut ours_out = Vec::with_capacity(2048);
    Case {
        name,
        bytes: bytes.len(),
        plain: Box::new(move || {
            plain_out.clear();
            serde_json::to_writer(&mut plain_out, black_box(&value)).expect("JSON");
            black_box(&plain_out).len()
        }),
        ours: Box::new(move || {
            ours_out.clear();
            write(&mut ours_out);
            black_box(&ours_out).len()
        }),
    }
}
