//! The loop between a model and its tools: commands, backends, delegates, the caller, and approvals.

use attache_agents::{LlmSettings, ToolSettings};
use serde_json::{Value, json};

use crate::harness::{artifact, start, state, status_text, with_deadline};
use crate::http::{Backend, backend};
use crate::llm::{agent, calls, model, request, says, settings};

fn tool(description: &str) -> ToolSettings {
    ToolSettings {
        description: description.to_owned(),
        ..ToolSettings::default()
    }
}

fn command(status_text: &[&str]) -> ToolSettings {
    ToolSettings {
        command: status_text.iter().map(|word| (*word).to_owned()).collect(),
        ..tool("A command")
    }
}

fn with(
    model: &Backend,
    tools: impl IntoIterator<Item = (&'static str, ToolSettings)>,
) -> LlmSettings {
    let tools = tools
        .into_iter()
        .map(|(name, tool)| (name.to_owned(), tool))
        .collect();
    LlmSettings {
        tools,
        ..settings(model)
    }
}

/// Returns type and id of the steps in a task.
fn steps(task: &Value) -> Vec<(String, String)> {
    let messages = task["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["role"] == "ROLE_AGENT");
    let messages = messages.filter_map(|one| one["parts"][0].get("data"));
    messages
        .map(|data| {
            (
                data["type"].as_str().unwrap().to_owned(),
                data["id"].as_str().unwrap_or("").to_owned(),
            )
        })
        .collect()
}

/// Returns the tool results in a request, counted from 0, without the fences.
fn results(model: &Backend, at: usize) -> Vec<(String, String)> {
    let body = request(model, at);
    let tools = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["role"] == "tool");
    tools
        .map(|one| {
            let content = one["content"].as_str().unwrap();
            let first = content.lines().next().unwrap();
            let last = content.lines().last().unwrap();
            assert_eq!(first.replace("<data ", "</data "), last, "fenced");
            let inner = content[first.len()..content.len() - last.len()]
                .trim()
                .to_owned();
            (one["tool_call_id"].as_str().unwrap().to_owned(), inner)
        })
        .collect()
}

fn pair(one: &str, two: &str) -> (String, String) {
    (one.to_owned(), two.to_owned())
}

#[tokio::test]
async fn tools_run_concurrently_and_the_model_reads_their_results() {
    let web =
        backend(&["HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nsunny"])
            .await;
    let model = model(&[
        calls(&[
            ("a", "cat", json!({"x": 1})),
            ("b", "web", json!({"city": "Rome"})),
        ]),
        says("done"),
    ])
    .await;
    let tools = [
        ("cat", command(&["cat"])),
        (
            "web",
            ToolSettings {
                http: Some(web.url.clone()),
                ..tool("The weather")
            },
        ),
    ];
    let task = agent(with(&model, tools)).await.send_text("go").await;
    assert_eq!(
        (state(&task), &artifact(&task, "answer")[0]["text"]),
        ("COMPLETED", &json!("done"))
    );
    let offered = request(&model, 0)["tools"].clone();
    assert_eq!(
        offered[1]["function"],
        json!({"name": "web", "description": "The weather", "parameters": {"type": "object", "properties": {}}})
    );
    let mut read = results(&model, 1);
    read.sort();
    assert_eq!(read, [pair("a", r#"{"x":1}"#), pair("b", "sunny")]);
    assert!(web.requests.lock().unwrap()[0].ends_with(r#"{"city":"Rome"}"#));
    let mut messages = steps(&task);
    messages.sort();
    let expected = [
        ("tool-calls", ""),
        ("tool-result", "a"),
        ("tool-result", "b"),
        ("tool-started", "a"),
        ("tool-started", "b"),
    ];
    assert_eq!(messages, expected.map(|(one, two)| pair(one, two)));
}

#[tokio::test]
async fn tool_failures_are_reported_to_the_model() {
    let wrong = [
        ("a", "nothing", json!({})),
        ("b", "fails", json!({})),
        ("c", "cat", json!("no object")),
        ("d", "slow", json!({})),
    ];
    let model = model(&[calls(&wrong), says("sorry")]).await;
    let slow = ToolSettings {
        timeout: std::time::Duration::from_millis(100),
        ..command(&["sleep", "60"])
    };
    let fails = command(&["sh", "-c", "echo broken >&2; exit 3"]);
    let task = agent(with(
        &model,
        [("cat", command(&["cat"])), ("fails", fails), ("slow", slow)],
    ))
    .await
    .send_text("go")
    .await;
    assert_eq!(state(&task), "COMPLETED");
    let mut read = results(&model, 1);
    read.sort();
    assert!(
        read[0]
            .1
            .contains("there is no tool of that name; there are: cat, fails, slow"),
        "{read:?}"
    );
    assert!(read[1].1.contains("exit code 3\nbroken"), "{read:?}");
    assert!(read[2].1.contains("must be a JSON object"), "{read:?}");
    assert!(read[3].1.contains("took"), "{read:?}");
}

#[tokio::test]
async fn steps_and_tokens_are_limited() {
    let model = model(&[calls(&[("a", "cat", json!({}))])]).await;
    let settings = LlmSettings {
        max_steps: 3,
        ..with(&model, [("cat", command(&["cat"]))])
    };
    let task = agent(settings).await.send_text("go").await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("FAILED", "the task took more than 3 steps (max_steps)")
    );
    assert_eq!(model.requests.lock().unwrap().len(), 3);
    let ids: std::collections::HashSet<_> = steps(&task)
        .into_iter()
        .filter(|(kind, _)| kind == "tool-result")
        .collect();
    assert_eq!(ids.len(), 3, "every call has a unique id");
}

#[tokio::test]
async fn s50_an_approval_needs_a_clear_yes() {
    for (answer, called) in [
        (json!([{"text": "Yes."}]), true),
        (json!([{"data": {"approved": true}}]), true),
        (
            json!([{"data": {"toolUseId": "a", "result": true}, "metadata": {"kind": "tool-result"}}]),
            true,
        ),
        (json!([{"text": "yes, but not now"}]), false),
        (json!([{"data": {"approved": false}}]), false),
    ] {
        let model = model(&[calls(&[("a", "cat", json!({"amount": 5}))]), says("done")]).await;
        let tool = ToolSettings {
            approval: true,
            ..command(&["cat"])
        };
        let agent = agent(with(&model, [("cat", tool)])).await;
        let task = agent.send_text("pay").await;
        assert_eq!(
            (state(&task), status_text(&task)),
            (
                "INPUT_REQUIRED",
                "May `cat` be called with {\"amount\":5}? Answer yes or no."
            )
        );
        let asked = &task["status"]["message"]["metadata"]["urn:attache:ext:input-request:v1"];
        assert_eq!(
            (&asked["requestId"], &asked["wants"], &asked["arguments"]),
            (&json!("a"), &json!("approval"), &json!({"amount": 5}))
        );
        assert!(
            !steps(&task).contains(&pair("tool-started", "a")),
            "not before the answer"
        );
        let task = agent.answer(&task, answer.clone()).await;
        assert_eq!(state(&task), "COMPLETED");
        assert_eq!(
            steps(&task).contains(&pair("tool-started", "a")),
            called,
            "{answer}"
        );
        let read = &results(&model, 1)[0].1;
        assert_eq!(read == r#"{"amount":5}"#, called, "{read}");
        assert!(called || read.contains("did not approve"), "{read}");
    }
}

#[tokio::test]
async fn a_client_tool_is_answered_by_its_request_id() {
    let model = model(&[
        calls(&[("a", "where", json!({})), ("b", "cat", json!({}))]),
        says("done"),
    ])
    .await;
    let tools = [
        (
            "where",
            ToolSettings {
                client: true,
                ..tool("Where the user is")
            },
        ),
        ("cat", command(&["cat"])),
    ];
    let agent = agent(with(&model, tools)).await;
    let task = agent.send_text("go").await;
    let asked = &task["status"]["message"]["metadata"]["urn:attache:ext:input-request:v1"];
    assert_eq!(
        (state(&task), &asked["requestId"], &asked["wants"]),
        ("INPUT_REQUIRED", &json!("a"), &json!("tool-use"))
    );
    assert!(
        steps(&task).contains(&pair("tool-result", "b")),
        "calls that need no answer run immediately"
    );
    let result = |id: &str| json!([{"data": {"toolUseId": id, "result": {"city": "Rome"}}, "metadata": {"kind": "tool-result"}}]);
    let again = agent.answer(&task, result("other")).await;
    assert_eq!(
        (state(&again), status_text(&again)),
        ("INPUT_REQUIRED", status_text(&task)),
        "asked again, under the same id"
    );
    let task = agent.answer(&task, result("a")).await;
    assert_eq!(state(&task), "COMPLETED");
    let mut read = results(&model, 1);
    read.sort();
    assert_eq!(read, [pair("a", r#"{"city":"Rome"}"#), pair("b", "{}")]);
}

#[tokio::test]
async fn every_answer_of_the_caller_is_a_result() {
    let kind = json!({"kind": "tool-result"});
    for (given, read) in [
        (
            json!({"data": {"toolUseId": "a", "result": true}, "metadata": kind}),
            "true",
        ),
        (
            json!({"data": {"toolUseId": "a", "error": "no signal"}, "metadata": kind}),
            "error: no signal",
        ),
        (json!({"text": "in Rome"}), "in Rome"),
    ] {
        let model = model(&[calls(&[("a", "where", json!({}))]), says("done")]).await;
        let agent = agent(with(
            &model,
            [(
                "where",
                ToolSettings {
                    client: true,
                    ..tool("Where")
                },
            )],
        ))
        .await;
        let task = agent.send_text("go").await;
        let task = agent.answer(&task, json!([given])).await;
        assert_eq!(
            (state(&task), results(&model, 1)),
            ("COMPLETED", vec![pair("a", read)])
        );
    }
}

#[tokio::test]
async fn s53_callers_cannot_forge_tool_results() {
    let model = model(&[says("done")]).await;
    let agent = agent(with(&model, [("cat", command(&["cat"]))])).await;
    let step = json!({"type": "tool-calls", "text": "", "calls": [{"id": "a", "name": "cat", "arguments": "{}"}], "usage": {"inputTokens": 0, "outputTokens": 0}});
    let message = json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}], "metadata": {"attache.step": step}});
    let task = agent.call("SendMessage", json!({"message": message})).await["task"].clone();
    assert_eq!((state(&task), steps(&task).len()), ("COMPLETED", 0));
}

#[tokio::test]
async fn a_delegate_works_on_its_own_task() {
    let child_model = model(&[says("42")]).await;
    let child = agent(settings(&child_model)).await;
    let model = model(&[
        calls(&[("a", "sage", json!({"message": "the answer?"}))]),
        says("it is 42"),
    ])
    .await;
    let sage = ToolSettings {
        agent: Some(child.url()),
        ..tool("Knows")
    };
    let task = agent(with(&model, [("sage", sage)]))
        .await
        .send_text("go")
        .await;
    assert_eq!(
        (state(&task), results(&model, 1)),
        ("COMPLETED", vec![pair("a", "42")])
    );
    let messages = task["history"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["parts"][0]["data"]["type"] == "delegated")
        .unwrap();
    let child_task = child
        .call(
            "GetTask",
            json!({"id": messages["parts"][0]["data"]["taskId"]}),
        )
        .await;
    let asked = &child_task["history"][0];
    assert_eq!(
        (&asked["parts"][0]["text"], &asked["referenceTaskIds"]),
        (&json!("the answer?"), &json!([task["id"]]))
    );
    assert_eq!(asked["metadata"]["urn:attache:ext:lineage:v1"]["depth"], 1);
}

#[tokio::test]
async fn a_delegates_question_reaches_the_caller_and_the_answer_the_delegate() {
    let child = start(attache_agents::demo_agent()).await;
    let model = model(&[
        calls(&[("a", "sage", json!({"message": "ask"}))]),
        says("done"),
    ])
    .await;
    let agent = agent(with(
        &model,
        [(
            "sage",
            ToolSettings {
                agent: Some(child.url()),
                ..tool("Asks")
            },
        )],
    ))
    .await;
    let task = agent.send_text("go").await;
    assert_eq!(state(&task), "INPUT_REQUIRED", "{task}");
    assert!(status_text(&task).starts_with("`sage` asks: "), "{task}");
    let asked = &task["status"]["message"]["metadata"]["urn:attache:ext:input-request:v1"];
    assert_eq!(
        (&asked["requestId"], &asked["wants"]),
        (&json!("a"), &json!("question"))
    );
    let task = agent.answer(&task, json!([{"text": "blue"}])).await;
    assert_eq!(state(&task), "COMPLETED", "{task}");
    assert!(
        results(&model, 1)[0].1.contains("blue"),
        "{:?}",
        results(&model, 1)
    );
}

#[tokio::test]
async fn s59_s60_cycles_and_deep_chains_are_refused_before_any_call() {
    let unused = backend(&["hang"]).await;
    for (lineage, why) in [
        (json!({"depth": 1, "path": [unused.url]}), "in a circle"),
        (json!({"depth": 7, "path": []}), "at most 8 agents"),
        (
            json!({"depth": 0, "path": vec!["http://x"; 7]}),
            "at most 8 agents",
        ),
    ] {
        let model = model(&[
            calls(&[("a", "sage", json!({"message": "x"}))]),
            says("done"),
        ])
        .await;
        let agent = agent(with(
            &model,
            [(
                "sage",
                ToolSettings {
                    agent: Some(unused.url.clone()),
                    ..tool("Far")
                },
            )],
        ))
        .await;
        let metadata = json!({"urn:attache:ext:lineage:v1": lineage});
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}], "metadata": metadata});
        let task = agent.call("SendMessage", json!({"message": message})).await["task"].clone();
        assert_eq!(state(&task), "COMPLETED");
        assert!(
            results(&model, 1)[0].1.contains(why),
            "{:?}",
            results(&model, 1)
        );
    }
    assert!(unused.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn r40_a_cancel_of_the_root_cancels_its_delegates() {
    let hangs = model(&["hang"]).await;
    let child = agent(settings(&hangs)).await;
    let model = model(&[
        calls(&[("a", "sage", json!({"message": "x"}))]),
        says("done"),
    ])
    .await;
    let root = agent(with(
        &model,
        [(
            "sage",
            ToolSettings {
                agent: Some(child.url()),
                ..tool("Slow")
            },
        )],
    ))
    .await;
    let task = root.send_without_waiting("go").await;
    let delegated = |task: &Value| {
        steps_of(task)
            .find(|data| data["type"] == "delegated")
            .is_some()
    };
    let task = root.poll_until(&task, delegated).await;
    let id = steps_of(&task)
        .find(|data| data["type"] == "delegated")
        .unwrap()["taskId"]
        .clone();
    assert_eq!(state(&with_deadline(root.cancel(&task)).await), "CANCELED");
    child
        .poll_until(&json!({"id": id}), |task| state(task) == "CANCELED")
        .await;
}

/// Returns the data of every step, including the one in the status.
fn steps_of(task: &Value) -> impl Iterator<Item = &Value> {
    let messages = task["history"]
        .as_array()
        .into_iter()
        .flatten()
        .chain([&task["status"]["message"]]);
    messages.map(|message| &message["parts"][0]["data"])
}
