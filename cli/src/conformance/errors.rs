//! Checks of responses to invalid requests.

use attache::model::Binding;
use serde_json::{Value, json};

use super::raw::{JSON, expect_code, get_unknown_task, require_binding, send, shortened};
use super::{AgentUnderTest, CheckResult, ConformanceCheck, UNKNOWN_TASK_ID, ensure, skip};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "errors/rpc-parse",
        rule: "over JSON-RPC, invalid JSON is -32700",
        run: |agent| Box::pin(rpc(agent, "{", -32700)),
    },
    ConformanceCheck {
        name: "errors/rpc-invalid-request",
        rule: "over JSON-RPC, JSON that is not a request is -32600",
        run: |agent| Box::pin(rpc(agent, r#"{"jsonrpc":"2.0","id":1}"#, -32600)),
    },
    ConformanceCheck {
        name: "errors/rpc-unknown-method",
        rule: "over JSON-RPC, an unknown method is -32601",
        run: |agent| {
            Box::pin(rpc(
                agent,
                r#"{"jsonrpc":"2.0","id":1,"method":"NoSuchMethod"}"#,
                -32601,
            ))
        },
    },
    ConformanceCheck {
        name: "errors/rpc-invalid-params",
        rule: "over JSON-RPC, parameters of the wrong type are -32602",
        run: |agent| {
            Box::pin(rpc(
                agent,
                r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":7}}"#,
                -32602,
            ))
        },
    },
    ConformanceCheck {
        name: "errors/rpc-batch",
        rule: "over JSON-RPC, a batch is -32600",
        run: |agent| {
            Box::pin(rpc(
                agent,
                r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}]"#,
                -32600,
            ))
        },
    },
    ConformanceCheck {
        name: "errors/rpc-other-protocol",
        rule: "over JSON-RPC, another version of JSON-RPC is -32600",
        run: |agent| {
            Box::pin(rpc(
                agent,
                r#"{"jsonrpc":"1.0","id":1,"method":"GetTask","params":{"id":"x"}}"#,
                -32600,
            ))
        },
    },
    ConformanceCheck {
        name: "errors/rpc-missing-params",
        rule: "over JSON-RPC, a missing required field is -32602",
        run: |agent| {
            Box::pin(rpc(
                agent,
                r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}"#,
                -32602,
            ))
        },
    },
    ConformanceCheck {
        name: "errors/rpc-task-not-found",
        rule: "over JSON-RPC, an error has the id of its request, a message, and typed details if any",
        run: |agent| Box::pin(rpc_shape(agent)),
    },
    ConformanceCheck {
        name: "errors/rpc-version",
        rule: "over JSON-RPC, an unsupported version is -32009",
        run: |agent| Box::pin(rpc_version(agent)),
    },
    ConformanceCheck {
        name: "operations/list-shape",
        rule: "over JSON-RPC, a list has tasks, nextPageToken, pageSize and totalSize, also when they are empty",
        run: |agent| Box::pin(rpc_list(agent)),
    },
    ConformanceCheck {
        name: "errors/rest-task-not-found",
        rule: "over HTTP+JSON, an unknown task is 404 with TASK_NOT_FOUND in its details",
        run: |agent| Box::pin(rest_not_found(agent)),
    },
    ConformanceCheck {
        name: "errors/rest-shape",
        rule: "over HTTP+JSON, an error has its status as a number and by name, and a message",
        run: |agent| Box::pin(rest_shape(agent)),
    },
    ConformanceCheck {
        name: "errors/rest-not-cancelable",
        rule: "over HTTP+JSON, CancelTask of an ended task has TASK_NOT_CANCELABLE in its details",
        run: |agent| Box::pin(rest_not_cancelable(agent)),
    },
    ConformanceCheck {
        name: "errors/rest-wrong-verb",
        rule: "over HTTP+JSON, another method than that of the route is refused and has no effect",
        run: |agent| Box::pin(rest_verb(agent)),
    },
    ConformanceCheck {
        name: "errors/rest-unknown-route",
        rule: "over HTTP+JSON, an unknown route is 404",
        run: |agent| Box::pin(rest_route(agent)),
    },
    ConformanceCheck {
        name: "errors/rest-parse",
        rule: "over HTTP+JSON, invalid JSON is 400",
        run: |agent| Box::pin(rest_parse(agent)),
    },
    ConformanceCheck {
        name: "errors/rest-version",
        rule: "over HTTP+JSON, an unsupported version is 400 with VERSION_NOT_SUPPORTED",
        run: |agent| Box::pin(rest_version(agent)),
    },
];

async fn rpc(agent: &AgentUnderTest<'_>, body: &str, code: i64) -> CheckResult {
    require_binding(agent, Binding::JsonRpc)?;
    let answer = send(agent, "POST", "", &[JSON], body).await?;
    expect_code(&answer.body, code)
}

async fn rpc_shape(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::JsonRpc)?;
    for id in [json!("seven"), json!(7)] {
        let body = send(agent, "POST", "", &[JSON], &get_unknown_task(&id))
            .await?
            .body;
        expect_code(&body, -32001)?;
        ensure(body["id"] == id && body["jsonrpc"] == "2.0", || {
            format!("it is for {}", body["id"])
        })?;
        ensure(body["error"]["message"].is_string(), || {
            "it has no message".to_owned()
        })?;
        let data = &body["error"]["data"];
        ensure(data.is_null() || data.is_array(), || {
            "its data is no list".to_owned()
        })?;
    }
    Ok(())
}

async fn rpc_version(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::JsonRpc)?;
    let answer = send(
        agent,
        "POST",
        "",
        &[JSON, ("a2a-version", "99.0")],
        &get_unknown_task(&json!(1)),
    )
    .await?;
    expect_code(&answer.body, -32009)
}

async fn rpc_list(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::JsonRpc)?;
    let params = json!({"contextId": UNKNOWN_TASK_ID});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params});
    let body = send(agent, "POST", "", &[JSON], &request.to_string())
        .await?
        .body;
    let page = &body["result"];
    let whole = page["tasks"].is_array()
        && page["nextPageToken"].is_string()
        && page["pageSize"].is_number()
        && page["totalSize"].is_number();
    ensure(whole, || format!("the answer is {}", shortened(&body)))
}

async fn rest_not_found(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::HttpJson)?;
    let answer = send(agent, "GET", &format!("/tasks/{UNKNOWN_TASK_ID}"), &[], "").await?;
    ensure(answer.status == 404, || format!("it is {}", answer.status))?;
    has_reason(&answer.body, "TASK_NOT_FOUND")
}

async fn rest_shape(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::HttpJson)?;
    let body = send(agent, "GET", &format!("/tasks/{UNKNOWN_TASK_ID}"), &[], "")
        .await?
        .body;
    let error = &body["error"];
    let whole =
        error["code"] == 404 && error["status"] == "NOT_FOUND" && error["message"].is_string();
    ensure(whole, || format!("the body is {}", shortened(&body)))
}

async fn rest_not_cancelable(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::HttpJson)?;
    let id = agent.ended_task()?.id.clone();
    // Ids may contain any character; only safe ones are put into the path.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if !id.as_str().chars().all(plain) {
        return Err(skip("the id of the task needs escaping in a path"));
    }
    let answer = send(agent, "POST", &format!("/tasks/{id}:cancel"), &[JSON], "{}").await?;
    // An early text of 1.0 had 409.
    ensure(matches!(answer.status, 400 | 409), || {
        format!("it is {}", answer.status)
    })?;
    has_reason(&answer.body, "TASK_NOT_CANCELABLE")
}

async fn rest_verb(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::HttpJson)?;
    let answer = send(agent, "PUT", "/message:send", &[JSON], "{}").await?;
    ensure(matches!(answer.status, 404 | 405), || {
        format!("it is {}", answer.status)
    })
}

fn has_reason(body: &Value, reason: &str) -> CheckResult {
    let details = body["error"]["details"].as_array().into_iter().flatten();
    let info = details
        .into_iter()
        .any(|one| one["reason"] == reason && one["domain"] == "a2a-protocol.org");
    ensure(info, || format!("the body is {}", shortened(body)))
}

async fn rest_route(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::HttpJson)?;
    let answer = send(agent, "GET", "/no-such-route", &[], "").await?;
    ensure(answer.status == 404, || format!("it is {}", answer.status))
}

async fn rest_parse(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::HttpJson)?;
    let answer = send(agent, "POST", "/message:send", &[JSON], "{").await?;
    ensure(answer.status == 400, || format!("it is {}", answer.status))
}

async fn rest_version(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_binding(agent, Binding::HttpJson)?;
    let answer = send(
        agent,
        "GET",
        &format!("/tasks/{UNKNOWN_TASK_ID}"),
        &[("a2a-version", "99.0")],
        "",
    )
    .await?;
    ensure(answer.status == 400, || format!("it is {}", answer.status))?;
    has_reason(&answer.body, "VERSION_NOT_SUPPORTED")
}
