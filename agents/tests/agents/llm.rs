//! The LLM agent with a mock model, in every dialect, with and without failures.

use std::sync::atomic::Ordering;
use std::time::Duration;

use attache_agents::{LlmAgent, LlmSettings, ModelSettings};
use serde_json::{Value, json};

use crate::harness::{TestServer, artifact, start, state, status_text};
use crate::http::{Backend, backend};

pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

/// Returns a streaming response with these events and this end.
pub(crate) fn stream(events: &[Value], end: &str) -> &'static str {
    let events: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    Box::leak(format!("{STREAM}{events}{end}").into_boxed_str())
}

pub(crate) fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

pub(crate) fn finish(why: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": why}]})
}

/// Returns the response of a model with a text.
pub(crate) fn says(text: &str) -> &'static str {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}});
    stream(
        &[
            delta(json!({"role": "assistant", "content": text})),
            finish("stop"),
            usage,
        ],
        "data: [DONE]\n\n",
    )
}

/// Returns the response of a model with tool calls: id, name and arguments.
pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> &'static str {
    let calls = calls.iter().enumerate().map(|(at, (id, name, arguments))| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        delta(json!({"tool_calls": [{"index": at, "id": id, "type": "function", "function": function}]}))
    });
    let events: Vec<_> = calls.chain([finish("tool_calls")]).collect();
    stream(&events, "data: [DONE]\n\n")
}

pub(crate) async fn model(answers: &[&'static str]) -> Backend {
    backend(Box::leak(answers.to_vec().into_boxed_slice())).await
}

pub(crate) fn settings(backend: &Backend) -> LlmSettings {
    let url = backend.url.replace("/chat", "/v1");
    let model = ModelSettings {
        url,
        name: "m1".to_owned(),
        ..ModelSettings::default()
    };
    LlmSettings {
        model,
        ..LlmSettings::default()
    }
}

pub(crate) async fn agent(settings: LlmSettings) -> TestServer {
    start(LlmAgent::new(settings).unwrap()).await
}

/// Returns the body of a request, counted from 0.
pub(crate) fn request(backend: &Backend, at: usize) -> Value {
    let requests = backend.requests.lock().unwrap();
    serde_json::from_str(requests[at].split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn answer(task: &Value) -> &str {
    artifact(task, "answer")[0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn an_answer_is_read_in_every_dialect() {
    let hello = [
        delta(json!({"content": "hel"})),
        delta(json!({"content": "lo é"})),
    ];
    let with = |last: &[Value]| [&hello[..], last].concat();
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}});
    let llama = json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10, "completion_tokens": 2}, "timings": {}});
    let whole = json!({"choices": [{"message": {"content": "hello é"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 10, "completion_tokens": 2}});
    let whole = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{whole}"
    );
    for (dialect, reply, tokens) in [
        (
            "openai",
            stream(&with(&[finish("stop"), usage.clone()]), "data: [DONE]\n\n"),
            10,
        ),
        ("llama.cpp", stream(&with(&[llama]), "data: [DONE]\n\n"), 10),
        (
            "no usage",
            stream(&with(&[finish("stop")]), "data: [DONE]\n\n"),
            0,
        ),
        ("no end", stream(&with(&[finish("stop")]), ""), 0),
        ("no finish", stream(&hello, "data: [DONE]\n\n"), 0),
        (
            "comments",
            stream(
                &with(&[finish("stop"), usage]),
                ": ping\n\ndata: [DONE]\n\n",
            ),
            10,
        ),
        ("no stream", Box::leak(whole.into_boxed_str()), 10),
    ] {
        let model = model(&[reply]).await;
        let task = agent(settings(&model)).await.send_text("hi").await;
        assert_eq!(
            (state(&task), answer(&task)),
            ("COMPLETED", "hello é"),
            "{dialect}: {task}"
        );
        let usage = &task["metadata"]["attache.usage"];
        assert_eq!(
            (&usage["inputTokens"], &usage["calls"]),
            (&json!(tokens), &json!(1)),
            "{dialect}"
        );
    }
}

#[tokio::test]
async fn a_request_has_prompt_tools_and_settings() {
    let model = model(&[says("one"), says("two")]).await;
    let mut settings = settings(&model);
    settings.system = "Be brief.".to_owned();
    settings.model.temperature = Some(0.5);
    settings.model.api_key = Some("hunter2".into());
    settings.model.more = json!({"seed": 7}).as_object().unwrap().clone();
    let agent = agent(settings).await;
    let first = agent.send_text("hi").await;
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "and"}, {"data": {"n": 1}}], "contextId": first["contextId"]});
    agent.call("SendMessage", json!({"message": message})).await;
    let body = request(&model, 1);
    assert_eq!(
        (&body["model"], &body["temperature"], &body["seed"]),
        (&json!("m1"), &json!(0.5), &json!(7))
    );
    assert_eq!(
        (&body["stream"], &body["tools"]),
        (&json!(true), &Value::Null)
    );
    let prompt: Vec<_> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["role"].as_str().unwrap(),
                one["content"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(
        prompt[0].0 == "system" && prompt[0].1.starts_with("Be brief.\n\n"),
        "{prompt:?}"
    );
    assert_eq!(
        prompt[1..],
        [
            ("user", "hi"),
            ("assistant", "one"),
            ("user", "and\n{\"n\":1}")
        ]
    );
    let head = model.requests.lock().unwrap()[0].to_lowercase();
    assert!(
        head.starts_with("post /v1/chat/completions ")
            && head.contains("authorization: bearer hunter2")
    );
}

#[tokio::test]
async fn r34_a_broken_completion_fails_the_task_and_keeps_its_beginning() {
    let half = delta(json!({"content": "half"}));
    for (reply, why) in [
        (
            stream(std::slice::from_ref(&half), ""),
            "the model broke off in the middle of its answer",
        ),
        (
            stream(std::slice::from_ref(&half), "data: {\"cho"),
            "the model broke off in the middle of its answer",
        ),
        (
            stream(&[half.clone(), json!({"error": {"message": "secret"}})], ""),
            "the model failed in the middle of its answer",
        ),
        (
            stream(
                std::slice::from_ref(&half),
                "event: error\ndata: secret\n\n",
            ),
            "the model failed in the middle of its answer",
        ),
        (
            stream(std::slice::from_ref(&half), "data: nonsense\n\n"),
            "the model sent an invalid answer",
        ),
    ] {
        let model = model(&[reply]).await;
        let task = agent(settings(&model)).await.send_text("hi").await;
        assert_eq!(
            (state(&task), status_text(&task), answer(&task)),
            ("FAILED", why, "half"),
            "{reply}"
        );
        assert!(!task.to_string().contains("secret"));
    }
    let silent = model(&["hang"]).await;
    let mut settings = settings(&silent);
    settings.model.timeout = Duration::from_millis(100);
    settings.model.retries = 0;
    let task = agent(settings).await.send_text("hi").await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("FAILED", "the model sent nothing for 100ms")
    );
}

#[tokio::test]
async fn r34_an_overloaded_model_is_retried_a_limited_number_of_times() {
    const BUSY: &str = "HTTP/1.1 429 Busy\r\nRetry-After: 0\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret";
    const WRONG: &str = "HTTP/1.1 401 No\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret";
    for (answers, end, why, asked) in [
        (vec![BUSY, BUSY, says("fine")], "COMPLETED", "none", 3),
        (
            vec![BUSY],
            "FAILED",
            "the model is not available: 429 Too Many Requests",
            4,
        ),
        (
            vec![WRONG],
            "FAILED",
            "the model does not accept our credentials",
            1,
        ),
    ] {
        let model = model(&answers).await;
        let task = agent(settings(&model)).await.send_text("hi").await;
        assert_eq!((state(&task), status_text(&task)), (end, why));
        assert_eq!(model.asked.load(Ordering::SeqCst), asked, "{why}");
    }
}

#[tokio::test]
async fn reasoning_is_separated_from_the_answer() {
    let reply = stream(
        &[
            delta(json!({"reasoning_content": "let me "})),
            delta(json!({"reasoning_content": "see"})),
            delta(json!({"content": "yes"})),
            finish("stop"),
        ],
        "data: [DONE]\n\n",
    );
    for (show_reasoning, expected) in [
        (
            true,
            vec![json!({"type": "reasoning", "text": "let me see"})],
        ),
        (false, Vec::new()),
    ] {
        let model = model(&[reply]).await;
        let task = agent(LlmSettings {
            show_reasoning,
            ..settings(&model)
        })
        .await
        .send_text("hi")
        .await;
        let steps: Vec<_> = task["history"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["role"] == "ROLE_AGENT")
            .map(|one| one["parts"][0]["data"].clone())
            .collect();
        assert_eq!((steps, answer(&task)), (expected, "yes"));
    }
}

#[tokio::test]
async fn invalid_settings_are_refused_with_their_key() {
    let model = model(&[says("x")]).await;
    let good = settings(&model);
    let mut nameless = good.clone();
    nameless.model.name.clear();
    let mut nowhere = good.clone();
    nowhere.model.url = "ftp://x".to_owned();
    let mut toolless = good.clone();
    toolless
        .tools
        .insert("x".to_owned(), attache_agents::ToolSettings::default());
    for (settings, key) in [(nameless, "model"), (nowhere, "model"), (toolless, "tools")] {
        assert_eq!(LlmAgent::new(settings).unwrap_err().key, key);
    }
}
