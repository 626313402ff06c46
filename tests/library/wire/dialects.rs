//! Input dialects: every known form of a request, response or event is read as its 1.0 equivalent.
//! Output always has the exact form of one version.

use attache::model::{Limits, Operation, Request, Response, StreamResponse, TaskId, Version};
use attache::wire::method::{find_method, method_name};
use attache::wire::path::route;
use attache::wire::{self, Dialect};
use serde_json::{Value, json};

use crate::wire::golden::blank_generated;

/// Returns the 1.0 method name and params of a request.
fn in_v1(request: &Request, operation: Operation) -> (&'static str, Value) {
    request.validate(&Limits::default()).unwrap();
    let mut out = Vec::new();
    wire::write_params(&mut out, request, Version::V1).unwrap();
    (
        method_name(operation, Version::V1).unwrap(),
        serde_json::from_slice(&out).unwrap(),
    )
}

/// Reads the params of a call. Expects the equivalent 1.0 request and the dialect of the response.
fn call(called: &str, params: Value, wanted: &str, wanted_params: Value, answered: Dialect) {
    let method = find_method(called).unwrap();
    let (request, dialect) = wire::read_params(method, &params.to_string())
        .unwrap_or_else(|error| panic!("{called} {params}: {error}"));
    let (read_as, mut read) = in_v1(&request, method.operation);
    blank_generated(&mut read, &wanted_params);
    assert_eq!(
        (read_as, read, dialect),
        (wanted, wanted_params, answered),
        "{called} {params}"
    );
}

/// Like [`call`], for a REST request such as `POST /v1/message:send`.
fn rest(line: &str, body: Value, wanted: &str, wanted_params: Value, answered: Dialect) {
    let (http_method, path) = line.split_once(' ').unwrap();
    let route = route(http_method, path).unwrap();
    let (request, dialect) = wire::read_rest(&route, "", body.to_string().as_bytes())
        .unwrap_or_else(|error| panic!("{line} {body}: {error}"));
    let (read_as, read) = in_v1(&request, route.operation);
    assert_eq!(
        (read_as, read, dialect),
        (wanted, wanted_params, answered),
        "{line} {body}"
    );
}

/// Reads an event and expects its 1.0 form.
fn event(dialect: &Dialect, text: Value, wanted: Value) {
    let event = wire::read_event(&text.to_string(), dialect)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(written(&event, &Dialect::V1), wanted, "{text}");
}

fn written(event: &StreamResponse, dialect: &Dialect) -> Value {
    let mut out = Vec::new();
    wire::write_event(&mut out, event, false, dialect);
    serde_json::from_slice(&out).unwrap()
}

fn reply(operation: Operation, dialect: &Dialect, text: &str) -> Response {
    wire::read_response(operation, text, dialect).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn user(parts: Value) -> Value {
    json!({"messageId": "m", "role": "ROLE_USER", "parts": parts})
}

#[test]
fn kaos_requests_are_read() {
    let generated =
        json!({"messageId": "<generated>", "role": "ROLE_USER", "parts": [{"text": "x"}]});
    for params in [
        // Each mark of a KAOS client alone permits a missing id (09, 0.5).
        json!({"message": {"role": "user", "parts": [{"text": "x"}]}}),
        json!({"message": {"role": "ROLE_USER", "parts": [{"type": "text", "text": "x"}]}}),
    ] {
        call(
            "SendMessage",
            params,
            "SendMessage",
            json!({"message": generated}),
            Dialect::V1,
        );
    }
    let mut in_context = generated;
    in_context["contextId"] = json!("c");
    call(
        "SendMessage",
        json!({"contextId": "c", "message": {"role": "ROLE_USER", "parts": [{"text": "x"}]}}),
        "SendMessage",
        json!({"message": in_context}),
        Dialect::V1,
    );
    call(
        "SendMessage",
        json!({"contextId": "beside", "message": {"messageId": "m", "contextId": "inside", "role": "agent", "parts": [{"text": "x"}]}}),
        "SendMessage",
        json!({"message": {"messageId": "m", "contextId": "inside", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}}),
        Dialect::V1,
    );
}

#[test]
fn kaos_responses_are_read() {
    event(
        &Dialect::V1,
        json!({
            "id": "t", "sessionId": "s", "status": {"state": "completed", "message": "Done", "timestamp": "2026-03-14T09:26:53"},
            "history": [{"role": "agent", "parts": [{"type": "text", "text": "x"}]}],
        }),
        json!({"task": {
            "id": "t", "contextId": "s",
            "status": {
                "state": "TASK_STATE_COMPLETED", "timestamp": "2026-03-14T09:26:53.000Z",
                "message": {"messageId": "", "role": "ROLE_AGENT", "parts": [{"text": "Done"}]},
            },
            "history": [{"messageId": "", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}],
        }}),
    );
}

#[test]
fn method_aliases_are_the_same_operations() {
    let old = json!({"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}});
    let new = json!({"message": user(json!([{"text": "x"}]))});
    // Under a 0.1 method name the body decides: a message with an id is newer.
    for (called, wanted) in [
        ("tasks/send", "SendMessage"),
        ("tasks/sendSubscribe", "SendStreamingMessage"),
    ] {
        call(called, old.clone(), wanted, new.clone(), Dialect::V03);
    }
    call(
        "tasks/subscribe",
        json!({"id": "t"}),
        "SubscribeToTask",
        json!({"id": "t"}),
        Dialect::V03,
    );
    call(
        "tasks/list",
        json!({"pageSize": 5}),
        "ListTasks",
        json!({"pageSize": 5}),
        Dialect::V03,
    );
    for called in [
        "agent/authenticatedExtendedCard",
        "agent/getAuthenticatedExtendedCard",
    ] {
        call(
            called,
            json!({}),
            "GetExtendedAgentCard",
            json!({}),
            Dialect::V03,
        );
    }
    call(
        "ListTaskPushNotificationConfig",
        json!({"taskId": "t"}),
        "ListTaskPushNotificationConfigs",
        json!({"taskId": "t"}),
        Dialect::V1,
    );
    call(
        "tasks/get",
        json!({"taskId": "t", "historyLength": 0}),
        "GetTask",
        json!({"id": "t"}),
        Dialect::V03,
    );
    call(
        "tasks/cancel",
        json!({"taskId": "t"}),
        "CancelTask",
        json!({"id": "t"}),
        Dialect::V03,
    );
}

#[test]
fn snake_case_names_are_valid_in_v1() {
    call(
        "SendMessage",
        json!({
            "message": {
                "message_id": "m", "context_id": "c", "task_id": "t", "reference_task_ids": ["r"], "role": 1,
                "parts": [{"url": "u", "media_type": "a/b"}], "kind": "whatever", "unknown": {"x": []},
            },
            "configuration": {
                "accepted_output_modes": ["a/b"], "history_length": "5", "return_immediately": true,
                "task_push_notification_config": {"url": "u"},
            },
        }),
        "SendMessage",
        json!({
            "message": {
                "messageId": "m", "contextId": "c", "taskId": "t", "referenceTaskIds": ["r"], "role": "ROLE_USER",
                "parts": [{"url": "u", "mediaType": "a/b"}],
            },
            "configuration": {
                "acceptedOutputModes": ["a/b"], "historyLength": 5, "returnImmediately": true,
                "taskPushNotificationConfig": {"url": "u"},
            },
        }),
        Dialect::V1,
    );
    call(
        "ListTasks",
        json!({"context_id": "c", "page_size": 5.0, "page_token": "p", "history_length": 0,
               "status_timestamp_after": "2026-03-14T10:00:00.5+01:00", "include_artifacts": true, "status": 6}),
        "ListTasks",
        json!({"contextId": "c", "pageSize": 5, "pageToken": "p", "historyLength": 0,
               "statusTimestampAfter": "2026-03-14T09:00:00.500Z", "includeArtifacts": true,
               "status": "TASK_STATE_INPUT_REQUIRED"}),
        Dialect::V1,
    );
}

#[test]
fn v1_draft_is_read() {
    let message = user(json!([{"text": ""}]));
    for (blocking, immediately) in [
        (json!(false), json!({"returnImmediately": true})),
        (json!(true), json!({})),
    ] {
        call(
            "SendMessage",
            json!({"message": message, "configuration": {"blocking": blocking}}),
            "SendMessage",
            json!({"message": message, "configuration": immediately}),
            Dialect::V1,
        );
    }
    call(
        "SendMessage",
        json!({"message": message, "configuration": {"blocking": true, "returnImmediately": true}}),
        "SendMessage",
        json!({"message": message, "configuration": {"returnImmediately": true}}),
        Dialect::V1,
    );
    call(
        "SendMessage",
        json!({"message": message, "configuration": {"pushNotificationConfig": {"url": "u", "token": "x"}}}),
        "SendMessage",
        json!({"message": message, "configuration": {"taskPushNotificationConfig": {"url": "u", "token": "x"}}}),
        Dialect::V1,
    );
    let flat =
        json!({"taskId": "t", "id": "c", "url": "u", "authentication": {"scheme": "Bearer"}});
    for params in [
        json!({"taskId": "t", "configId": "c", "config": {"url": "u", "authentication": {"schemes": ["Bearer"]}}}),
        json!({"taskId": "t", "id": "c", "pushNotificationConfig": {"url": "u", "authentication": {"scheme": "Bearer"}}}),
        json!({"task_id": "t", "config_id": "c", "push_notification_config": {"url": "u", "authentication": {"scheme": "Bearer"}}}),
        json!({"taskId": "t", "config": {"id": "c", "url": "u", "authentication": {"scheme": "Bearer"}}}),
        flat.clone(),
    ] {
        for called in [
            "SetTaskPushNotificationConfig",
            "CreateTaskPushNotificationConfig",
        ] {
            call(
                called,
                params.clone(),
                "CreateTaskPushNotificationConfig",
                flat.clone(),
                Dialect::V1,
            );
        }
    }
}

#[test]
fn parts_are_read_in_every_form() {
    for (part, new) in [
        (json!({"kind": "text", "text": "x"}), json!({"text": "x"})),
        (json!({"type": "text", "text": "x"}), json!({"text": "x"})),
        (
            json!({"kind": "text", "type": "text", "text": "x"}),
            json!({"text": "x"}),
        ),
        (json!({"text": "x"}), json!({"text": "x"})),
        (
            json!({"text": "x", "metadata": {"a": 1.0}}),
            json!({"text": "x", "metadata": {"a": 1.0}}),
        ),
        (
            json!({"kind": "file", "file": {"bytes": "AQID", "mimeType": "a/b", "name": "n"}}),
            json!({"raw": "AQID", "mediaType": "a/b", "filename": "n"}),
        ),
        (
            json!({"kind": "file", "file": {"data": "_-8"}}),
            json!({"raw": "/+8="}),
        ),
        (
            json!({"kind": "file", "file": {"fileWithBytes": "AQID"}}),
            json!({"raw": "AQID"}),
        ),
        (
            json!({"type": "file", "file": {"uri": "u"}}),
            json!({"url": "u"}),
        ),
        (
            json!({"kind": "file", "file": {"fileWithUri": "u", "bytes": null}}),
            json!({"url": "u"}),
        ),
        (
            json!({"file": {"uri": "u", "name": ""}}),
            json!({"url": "u"}),
        ),
        (
            json!({"url": "u", "mimeType": "a/b", "name": "n"}),
            json!({"url": "u", "mediaType": "a/b", "filename": "n"}),
        ),
        (json!({"raw": "AQID"}), json!({"raw": "AQID"})),
        (
            json!({"kind": "data", "data": {"a": [1]}}),
            json!({"data": {"a": [1]}}),
        ),
        (
            json!({"kind": "data", "data": [1, "a"]}),
            json!({"data": [1, "a"]}),
        ),
        (json!({"kind": "data", "data": 5}), json!({"data": 5})),
        (json!({"kind": "data", "data": null}), json!({"data": null})),
        (json!({"data": {"a": 1}}), json!({"data": {"a": 1}})),
        (
            json!({"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": true, "a": 1}}),
            json!({"data": [1], "metadata": {"a": 1}}),
        ),
        (
            json!({"kind": "tool-use", "toolUseId": "u", "input": {}}),
            json!({"data": {"toolUseId": "u", "input": {}}, "metadata": {"kind": "tool-use"}}),
        ),
        (
            json!({"kind": "tool-result", "toolUseId": "u", "result": 42, "metadata": {"a": 1}}),
            json!({"data": {"toolUseId": "u", "result": 42}, "metadata": {"a": 1, "kind": "tool-result"}}),
        ),
    ] {
        call(
            "message/send",
            json!({"message": {"messageId": "m", "role": "user", "parts": [part]}}),
            "SendMessage",
            json!({"message": user(json!([new]))}),
            Dialect::V03,
        );
    }
}

#[test]
fn legacy_parts_are_accepted_in_v1_requests() {
    for (part, new) in [
        (json!({"kind": "text", "text": "x"}), json!({"text": "x"})),
        (
            json!({"type": "file", "file": {"data": "AQID", "name": "n"}}),
            json!({"raw": "AQID", "filename": "n"}),
        ),
        (
            json!({"file": {"fileWithUri": "u", "mimeType": "a/b"}}),
            json!({"url": "u", "mediaType": "a/b"}),
        ),
        (
            json!({"url": "u", "mimeType": "a/b", "name": "n"}),
            json!({"url": "u", "mediaType": "a/b", "filename": "n"}),
        ),
    ] {
        call(
            "SendMessage",
            json!({"message": user(json!([part]))}),
            "SendMessage",
            json!({"message": user(json!([new]))}),
            Dialect::V1,
        );
    }
}

#[test]
fn seed_2_10_tool_parts_are_written_only_to_clients_that_run_tools() {
    let part = json!({"kind": "tool-result", "toolUseId": "u", "result": {"value": "42"}});
    let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [part]});
    let read = wire::read_event(&message.to_string(), &Dialect::V03).unwrap();
    assert_eq!(written(&read, &Dialect::V03Tools), message);
    let data = json!({"toolUseId": "u", "result": {"value": "42"}});
    let data = json!({"kind": "data", "data": data, "metadata": {"kind": "tool-result"}});
    assert_eq!(written(&read, &Dialect::V03)["parts"], json!([data]));
    let alias = None;
    let v01 = written(&read, &Dialect::V01 { alias });
    assert_eq!(v01["parts"][0]["type"], "data", "{v01}");
}

#[test]
fn seed_1_32_data_parts_with_a_kind_stay_data_parts() {
    for kind in ["invoice", "text", "message", "tool-list", ""] {
        let data = json!({"kind": "data", "data": {"a": 1}, "metadata": {"kind": kind}});
        let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [data]});
        let read = wire::read_event(&message.to_string(), &Dialect::V03).unwrap();
        for dialect in [Dialect::V03, Dialect::V03Tools] {
            assert_eq!(written(&read, &dialect), message, "{kind} {dialect:?}");
        }
    }
}

#[test]
fn missing_and_misplaced_members_of_older_clients_are_read() {
    let text = json!([{"kind": "text", "text": "x"}]);
    let new = json!({"message": user(json!([{"text": "x"}]))});
    let mut in_context = new.clone();
    in_context["message"]["contextId"] = json!("c");
    for (params, wanted) in [
        // No `kind` on the message, no `kind` at all, enums of 1.0, and all shapes of 1.0.
        (
            json!({"message": {"messageId": "m", "role": "user", "parts": text}}),
            &new,
        ),
        (
            json!({"message": {"messageId": "m", "role": "user", "parts": [{"text": "x"}]}}),
            &new,
        ),
        (
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}),
            &new,
        ),
        (
            json!({"message": {"role": "user", "parts": text}, "messageId": "m"}),
            &new,
        ),
        (
            json!({"message": {"messageId": "m", "role": "user", "parts": text}, "contextId": "c"}),
            &in_context,
        ),
        (
            json!({"message": {"messageId": "m", "role": "user", "parts": text, "taskId": null, "contextId": ""}}),
            &new,
        ),
    ] {
        call(
            "message/send",
            params,
            "SendMessage",
            wanted.clone(),
            Dialect::V03,
        );
    }
    let message = user(json!([{"text": "x"}]));
    for (configuration, wanted) in [
        (json!({}), json!({})),
        (
            json!({"acceptedOutputModes": [], "historyLength": 0}),
            json!({}),
        ),
        (
            json!({"blocking": false, "historyLength": 3}),
            json!({"returnImmediately": true, "historyLength": 3}),
        ),
        (json!({"blocking": true}), json!({})),
        (
            json!({"returnImmediately": true}),
            json!({"returnImmediately": true}),
        ),
    ] {
        call(
            "message/send",
            json!({"message": message, "configuration": configuration}),
            "SendMessage",
            json!({"message": message, "configuration": wanted}),
            Dialect::V03,
        );
    }
}

#[test]
fn input_request_is_stored_in_metadata() {
    let request =
        json!({"kind": "input-request", "prompt": "p", "requestId": "r", "sensitive": true});
    event(
        &Dialect::V03,
        json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": false, "status": {
            "state": "input-required",
            "message": {"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "p"}],
                        "inputRequest": request},
        }}),
        json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {
            "state": "TASK_STATE_INPUT_REQUIRED",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "p"}],
                        "metadata": {"urn:attache:ext:input-request:v1": request}},
        }}}),
    );
}

#[test]
fn headers_of_a_push_config_become_its_authentication() {
    for (headers, authentication) in [
        (
            json!({"Authorization": "Bearer x y"}),
            json!({"scheme": "Bearer", "credentials": "x y"}),
        ),
        (
            json!({"authorization": "Basic eDp5", "X-Custom": "v"}),
            json!({"scheme": "Basic", "credentials": "eDp5"}),
        ),
    ] {
        call(
            "tasks/pushNotificationConfig/set",
            json!({"taskId": "t", "pushNotificationConfig": {"url": "u", "headers": headers}}),
            "CreateTaskPushNotificationConfig",
            json!({"taskId": "t", "url": "u", "authentication": authentication}),
            Dialect::V03PushSuccess,
        );
    }
}

#[test]
fn v01_requests_are_read() {
    let v01 = |id: &str| Dialect::V01 {
        alias: Some(TaskId::from(id)),
    };
    let message = json!({"messageId": "<generated>", "role": "ROLE_USER", "contextId": "s", "parts": [{"text": "x"}]});
    for (called, wanted) in [
        ("tasks/send", "SendMessage"),
        ("tasks/sendSubscribe", "SendStreamingMessage"),
    ] {
        call(
            called,
            json!({"id": "mine", "sessionId": "s", "message": {"role": "user", "parts": [{"type": "text", "text": "x"}]},
                   "historyLength": 2, "pushNotification": {"url": "u", "token": "k"}, "metadata": {"a": 1}}),
            wanted,
            json!({"message": message, "metadata": {"a": 1},
                   "configuration": {"historyLength": 2, "taskPushNotificationConfig": {"url": "u", "token": "k"}}}),
            v01("mine"),
        );
    }
    call(
        "tasks/send",
        json!({"sessionId": "s", "message": {"role": "user", "parts": [{"text": "x"}]}}),
        "SendMessage",
        json!({"message": message}),
        Dialect::V01 { alias: None },
    );
    call(
        "tasks/pushNotification/set",
        json!({"id": "t", "pushNotificationConfig": {"url": "u", "authentication": {"schemes": ["Bearer"], "credentials": "x"}}}),
        "CreateTaskPushNotificationConfig",
        json!({"taskId": "t", "url": "u", "authentication": {"scheme": "Bearer", "credentials": "x"}}),
        v01("t"),
    );
    call(
        "tasks/pushNotification/get",
        json!({"id": "t"}),
        "GetTaskPushNotificationConfig",
        json!({"taskId": "t"}),
        v01("t"),
    );
}

#[test]
fn v01_responses_have_the_members_of_both_versions() {
    let first = Dialect::V01 {
        alias: Some(TaskId::from("mine")),
    };
    let task = |state: &str| {
        json!({"task": {
            "id": "t", "contextId": "c", "status": {"state": state, "timestamp": "2026-03-14T09:26:53.589Z"},
            "artifacts": [{"artifactId": "a", "parts": [{"url": "u"}]}],
            "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}, {"data": {"a": 1}}]}],
        }})
    };
    for (state, written_as) in [
        ("TASK_STATE_REJECTED", "failed"),
        ("TASK_STATE_AUTH_REQUIRED", "input-required"),
        ("TASK_STATE_CANCELED", "canceled"),
        ("TASK_STATE_WORKING", "working"),
    ] {
        let read = wire::read_event(&task(state).to_string(), &Dialect::V1).unwrap();
        let wanted = json!({
            "kind": "task", "id": "mine", "contextId": "c", "sessionId": "c",
            "status": {"state": written_as, "timestamp": "2026-03-14T09:26:53.589Z"},
            "artifacts": [{"artifactId": "a", "parts": [{"kind": "file", "type": "file", "file": {"uri": "u"}}]}],
            "history": [{"kind": "message", "messageId": "m", "role": "user", "parts": [
                {"kind": "text", "type": "text", "text": "x"}, {"kind": "data", "type": "data", "data": {"a": 1}},
            ]}],
        });
        assert_eq!(written(&read, &first), wanted, "{state}");
    }
    let status = json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_REJECTED"}}});
    let read = wire::read_event(&status.to_string(), &Dialect::V1).unwrap();
    assert_eq!(
        written(&read, &first),
        json!({"kind": "status-update", "id": "mine", "taskId": "t", "contextId": "c", "status": {"state": "failed"}, "final": false})
    );
    assert_eq!(written(&read, &Dialect::V01 { alias: None })["id"], "t");
    let artifact = json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}}});
    let read = wire::read_event(&artifact.to_string(), &Dialect::V1).unwrap();
    assert_eq!(
        written(&read, &first),
        json!({"kind": "artifact-update", "id": "mine", "taskId": "t", "contextId": "c", "append": false, "lastChunk": false,
               "artifact": {"artifactId": "a", "parts": [{"kind": "text", "type": "text", "text": "x"}]}})
    );
    let config = reply(
        Operation::CreatePushConfig,
        &Dialect::V1,
        r#"{"taskId":"t","id":"c","url":"u"}"#,
    );
    let mut out = Vec::new();
    wire::write_result(&mut out, &config, &first).unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&out).unwrap(),
        json!({"id": "mine", "taskId": "t", "pushNotificationConfig": {"id": "c", "url": "u"}})
    );
}

#[test]
fn v03_rest_accepts_both_forms_and_replies_in_the_same() {
    let new = json!({"message": user(json!([{"text": "x"}]))});
    let proto = |member: &str, parts: &str| json!({member: {"messageId": "m", "role": "ROLE_USER", parts: [{"text": "x"}]}});
    for (body, answered) in [
        (proto("message", "content"), Dialect::V03Rest),
        // 0.2.5, and a later proto of one SDK.
        (proto("request", "content"), Dialect::V03Rest),
        (proto("message", "parts"), Dialect::V03Rest),
        (
            json!({"message": {"messageId": "m", "role": "user", "parts": [{"text": "x"}]}}),
            Dialect::V03,
        ),
        (
            json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}}),
            Dialect::V03,
        ),
    ] {
        rest(
            "POST /v1/message:send",
            body.clone(),
            "SendMessage",
            new.clone(),
            answered.clone(),
        );
        rest(
            "POST /v1/message:stream",
            body,
            "SendStreamingMessage",
            new.clone(),
            answered,
        );
    }
    for (part, wanted) in [
        (
            json!({"file": {"fileWithBytes": "AQID", "mimeType": "a/b"}}),
            json!({"raw": "AQID", "mediaType": "a/b"}),
        ),
        (
            json!({"file": {"fileWithUri": "u", "name": "n"}}),
            json!({"url": "u", "filename": "n"}),
        ),
        (
            json!({"data": {"data": {"a": 1}}}),
            json!({"data": {"a": 1}}),
        ),
        (
            json!({"data": {"data": {"value": 5}}, "metadata": {"data_part_compat": true}}),
            json!({"data": 5}),
        ),
    ] {
        rest(
            "POST /v1/message:send",
            json!({"message": {"message_id": "m", "role": 1, "content": [part]}}),
            "SendMessage",
            json!({"message": user(json!([wanted]))}),
            Dialect::V03Rest,
        );
    }
    // ProtoJSON omits `false`, so a configuration without `true` means non-blocking.
    let message = proto("message", "content")["message"].clone();
    for (configuration, wanted) in [
        (json!({}), json!({"returnImmediately": true})),
        (
            json!({"blocking": true, "pushNotification": {"url": "u"}}),
            json!({"taskPushNotificationConfig": {"url": "u"}}),
        ),
    ] {
        rest(
            "POST /v1/message:send",
            json!({"message": message, "configuration": configuration}),
            "SendMessage",
            json!({"message": user(json!([{"text": "x"}])), "configuration": wanted}),
            Dialect::V03Rest,
        );
    }
}

#[test]
fn v03_rest_accepts_push_configs_in_every_nesting() {
    let wanted = json!({"taskId": "t", "id": "c", "url": "u"});
    let config = json!({"id": "c", "url": "u"});
    let named = json!({"name": "tasks/t/pushNotificationConfigs/c", "pushNotificationConfig": {"url": "u"}});
    for body in [
        json!({"parent": "tasks/t", "configId": "c", "config": named}),
        json!({"parent": "tasks/t", "configId": "c", "config": {"pushNotificationConfig": {"url": "u"}}}),
        json!({"config": named}),
        json!({"config": {"pushNotificationConfig": config}}),
        json!({"config": config}),
        named.clone(),
        json!({"pushNotificationConfig": config}),
        config.clone(),
        json!({"id": "c", "url": "u", "name": "a member we do not know"}),
    ] {
        for line in [
            "POST /v1/tasks/t/pushNotificationConfigs",
            "POST /v1/task/t/pushNotificationConfigs",
        ] {
            rest(
                line,
                body.clone(),
                "CreateTaskPushNotificationConfig",
                wanted.clone(),
                Dialect::V03Rest,
            );
        }
    }
    for body in [json!({}), json!({"name": "tasks/t"}), json!({"id": "t"})] {
        rest(
            "POST /v1/tasks/t:cancel",
            body,
            "CancelTask",
            json!({"id": "t"}),
            Dialect::V03Rest,
        );
    }
}

#[test]
fn r39_form_of_each_event_is_detected_separately() {
    let status = json!({"statusUpdate": {"taskId": "lg:1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}});
    for text in [
        status.clone(),
        json!({"status_update": {"task_id": "lg:1", "context_id": "c", "status": {"state": 2}}}),
        // Wrapped, with members of older versions inside.
        json!({"statusUpdate": {"kind": "status-update", "taskId": "lg:1", "contextId": "c", "status": {"state": "working"}, "final": false}}),
        // Flat, with the enums of 1.0, as one server sends it.
        json!({"kind": "status-update", "taskId": "lg:1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}, "final": false}),
        json!({"taskId": "lg:1", "contextId": "c", "status": {"state": "working"}, "final": false}),
        json!({"taskId": "lg:1", "contextId": "c", "status": {"state": "started"}}),
        // 0.1.
        json!({"id": "lg:1", "contextId": "c", "status": {"state": "working"}, "final": false}),
    ] {
        for dialect in [Dialect::V1, Dialect::V03] {
            event(&dialect, text.clone(), status.clone());
        }
    }
    let artifact = |id: &str, append: bool| {
        let mut event = json!({"taskId": "t", "contextId": "c", "artifact": {"artifactId": id, "parts": [{"text": "x"}]}});
        if append {
            event["append"] = json!(true);
        }
        json!({ "artifactUpdate": event })
    };
    for (text, wanted) in [
        (
            json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}}),
            artifact("a", false),
        ),
        (
            json!({"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}, "append": true}),
            artifact("a", true),
        ),
        // Single part instead of an artifact (09, 2.6).
        (
            json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "index": 2, "part": {"kind": "text", "text": "x", "append": true}, "timestamp": "2026-03-14T09:26:53Z"}),
            artifact("artifact-2", true),
        ),
        // 0.1: all members inside the artifact.
        (
            json!({"id": "t", "contextId": "c", "artifact": {"index": 1, "append": true, "parts": [{"type": "text", "text": "x"}]}}),
            artifact("artifact-1", true),
        ),
    ] {
        for dialect in [Dialect::V1, Dialect::V03] {
            event(&dialect, text.clone(), wanted.clone());
        }
    }
    let message =
        json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]}});
    for text in [
        message.clone(),
        json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "x"}]}),
        json!({"messageId": "m", "role": "agent", "parts": [{"text": "x"}]}),
        // Missing role: in a response the sender is the agent.
        json!({"messageId": "m", "parts": [{"type": "text", "text": "x"}]}),
        json!({"message": {"messageId": "m", "parts": [{"text": "x"}]}}),
    ] {
        for dialect in [Dialect::V1, Dialect::V03] {
            event(&dialect, text.clone(), message.clone());
        }
    }
}

#[test]
fn v02_rest_member_names_are_read() {
    let said = json!({"messageId": "m", "role": "ROLE_AGENT", "content": [{"text": "x"}]});
    let new = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "x"}]});
    for member in ["msg", "message"] {
        event(
            &Dialect::V03Rest,
            json!({ member: said }),
            json!({ "message": new }),
        );
    }
    for member in ["update", "message"] {
        event(
            &Dialect::V03Rest,
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_CANCELLED", member: said}}}),
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_CANCELED", "message": new}}}),
        );
    }
}

#[test]
fn r33_states_and_times_are_read_in_every_spelling() {
    for (spelled, state) in [
        (json!("cancelled"), "TASK_STATE_CANCELED"),
        (json!("canceled"), "TASK_STATE_CANCELED"),
        (json!("TASK_STATE_CANCELLED"), "TASK_STATE_CANCELED"),
        (json!("started"), "TASK_STATE_WORKING"),
        (json!("Working"), "TASK_STATE_WORKING"),
        (json!("pending"), "TASK_STATE_SUBMITTED"),
        (json!("input_required"), "TASK_STATE_INPUT_REQUIRED"),
        (json!("input-required"), "TASK_STATE_INPUT_REQUIRED"),
        (json!("auth_required"), "TASK_STATE_AUTH_REQUIRED"),
        (json!("task_state_rejected"), "TASK_STATE_REJECTED"),
        (json!(4), "TASK_STATE_FAILED"),
        (json!("unknown"), "TASK_STATE_UNSPECIFIED"),
    ] {
        for (time, exact) in [
            (
                "2026-03-14T09:26:53.589793+00:00",
                "2026-03-14T09:26:53.589Z",
            ),
            ("2026-03-14T10:26:53+01:00", "2026-03-14T09:26:53.000Z"),
            ("2026-03-14T09:26:53.5", "2026-03-14T09:26:53.500Z"),
        ] {
            let task = json!({"id": "t", "contextId": "c", "status": {"state": spelled, "timestamp": time}});
            let wanted = json!({"task": {"id": "t", "contextId": "c", "status": {"state": state, "timestamp": exact}}});
            for dialect in [Dialect::V1, Dialect::V03, Dialect::V03Rest] {
                event(&dialect, task.clone(), wanted.clone());
                event(&dialect, json!({ "task": task }), wanted.clone());
            }
        }
    }
}

#[test]
fn responses_are_read_bare_wrapped_or_empty() {
    let wanted = reply(
        Operation::GetTask,
        &Dialect::V1,
        r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELED"}}"#,
    );
    for text in [
        r#"{"task":{"id":"t","contextId":"c","status":{"state":"canceled"}}}"#,
        // Without `kind`, as KAOS writes it (09, 0.9).
        r#"{"id":"t","contextId":"c","status":{"state":"cancelled"}}"#,
        r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"canceled"},"artifacts":[],"history":null}"#,
    ] {
        for dialect in [Dialect::V1, Dialect::V03] {
            assert_eq!(
                reply(Operation::CancelTask, &dialect, text),
                wanted,
                "{text}"
            );
        }
    }
    let Response::PushConfig(config) = reply(
        Operation::CreatePushConfig,
        &Dialect::V03,
        r#"{"success":true}"#,
    ) else {
        panic!("no registration");
    };
    assert_eq!((config.url.as_str(), config.id), ("", None));
    let flat = reply(
        Operation::ListPushConfigs,
        &Dialect::V1,
        r#"{"configs":[{"taskId":"t","id":"c","url":"u"}]}"#,
    );
    for text in [
        r#"[{"taskId":"t","pushNotificationConfig":{"id":"c","url":"u"}}]"#,
        r#"{"configs":[{"name":"tasks/t/pushNotificationConfigs/c","pushNotificationConfig":{"id":"c","url":"u"}}],"nextPageToken":""}"#,
    ] {
        assert_eq!(
            reply(Operation::ListPushConfigs, &Dialect::V03, text),
            flat,
            "{text}"
        );
    }
    for text in ["null", "{}", ""] {
        assert_eq!(
            reply(Operation::DeletePushConfig, &Dialect::V1, text),
            Response::Empty
        );
    }
}

#[test]
fn null_data_beside_content_is_absent_in_v03_and_an_error_in_v1() {
    let read = |method: &str, part: &str| {
        let params =
            format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]}}}}"#);
        attache::wire::read_params(attache::wire::method::find_method(method).unwrap(), &params)
    };
    for part in [
        r#"{"kind":"text","text":"a","data":null}"#,
        r#"{"kind":null,"text":"a"}"#,
        r#"{"text":"a","raw":null,"data":null}"#,
    ] {
        let (request, _) = read("message/send", part).unwrap();
        let attache::model::Request::SendMessage(request) = request else {
            panic!("{request:?}")
        };
        assert_eq!(
            request.message.parts,
            [attache::model::Part::text("a")],
            "{part}"
        );
    }
    assert!(read("SendMessage", r#"{"text":"a","data":null}"#).is_err());
    assert!(read("message/send", r#"{"kind":"odd","text":"a","text":"b"}"#).is_err());
}

#[test]
fn responses_are_bounded_in_depth_and_errors_blame_the_peer() {
    use attache::ErrorKind;
    use attache::model::Operation;
    use attache::wire::{Dialect, read_event, read_response};
    let deep = format!(
        r#"{{"task":{{"id":"t","metadata":{{"a":{}{}}}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    for dialect in [Dialect::V1, Dialect::V03, Dialect::V03Rest] {
        assert_eq!(
            read_event(&deep, &dialect).unwrap_err().kind(),
            ErrorKind::Parse
        );
        assert_eq!(
            read_response(Operation::GetTask, &deep, &dialect)
                .unwrap_err()
                .kind(),
            ErrorKind::Parse
        );
        let error =
            read_response(Operation::GetTask, r#"{"id":5,"status":{}}"#, &dialect).unwrap_err();
        assert_eq!(
            (error.kind(), error.violations()[0].field()),
            (ErrorKind::InvalidAgentResponse, "id")
        );
    }
    let wrapped = r#"{"kind":"task","task":{"id":"t","status":{"state":"working"}}}"#;
    let attache::model::StreamResponse::Task(task) = read_event(wrapped, &Dialect::V1).unwrap()
    else {
        panic!()
    };
    assert_eq!(task.id.as_str(), "t");
    let page = r#"{"tasks":null,"next_page_token":"x","page_size":3,"total_size":"9"}"#;
    let read = read_response(Operation::ListTasks, page, &Dialect::V1).unwrap();
    let attache::model::Response::ListTasks(page) = read else {
        panic!("{read:?}")
    };
    assert_eq!(
        (
            page.next_page_token.as_str(),
            page.page_size,
            page.total_size
        ),
        ("x", 3, 9)
    );
}

#[test]
fn foreign_reasons_are_ignored() {
    let body = r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo",
        "reason":"PERMISSION_DENIED","domain":"googleapis.com"}]}}"#;
    assert_eq!(
        attache::wire::errors::read_rest_error(404, body).kind(),
        attache::ErrorKind::TaskNotFound
    );
}
