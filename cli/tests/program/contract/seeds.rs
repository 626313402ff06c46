//! Agents of the seed documents (`docs/compatibility.md`) as peers of the client verbs. They are older than 1.0, so each
//! call needs `--a2a-version`.

use serde_json::{Value, json};

use super::kaos_server::{Answer, KaosServer};
use super::run::{run_at, verb};
use super::scripted_agent::{self, RecordedRequest, ScriptedAgent, events, json_reply, result};

fn seed(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/seed");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn seed_0_35_kaos_agent_answers_send_and_task_verbs() {
    for version in ["auto", "0.3"] {
        let server = KaosServer::start(Answer::History);
        let sent = run_at(&server.url, &["send", "hi", "--a2a-version", version]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert_eq!(sent.field("State"), "TASK_STATE_COMPLETED");
        assert!(sent.out.contains("  from history: hi\n"), "{sent:?}");
        let json = ["send", "hi", "-o", "json", "--a2a-version", version];
        let sent = run_at(&server.url, &json).json();
        let history = sent["task"]["history"].as_array().unwrap();
        assert_eq!(history[1]["parts"][0]["text"], "from history: hi");
        for verb in ["get", "cancel"] {
            let args = ["task", verb, "task-0", "--a2a-version", version];
            let task = run_at(&server.url, &args);
            assert_eq!(task.code, Some(0), "{task:?}");
            assert!(task.out.contains("  from history: hi\n"), "{task:?}");
        }
    }
}

#[test]
fn seed_0_35_kaos_agent_is_not_called_without_the_opt_in() {
    let server = KaosServer::start(Answer::History);
    let sent = run_at(&server.url, &["send", "hi"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    assert!(sent.err.contains("--a2a-version 0.3"), "{sent:?}");
    let posts = server.calls();
    assert!(
        posts.iter().all(|call| !call.starts_with("POST")),
        "{posts:?}"
    );
    let card = server.url.clone() + "/.well-known/agent.json";
    let sent = run_at(&card, &["send", "hi"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.err.contains("VersionNotSupportedError"), "{sent:?}");
    assert!(sent.err.contains("--a2a-version 0.3"), "{sent:?}");
}

#[test]
fn seed_0_35_kaos_agent_is_checked_by_conformance() {
    let server = KaosServer::start(Answer::History);
    let args = ["conformance", "-o", "json", "--a2a-version", "auto"];
    let report = run_at(&server.url, &args);
    assert_eq!(report.code, Some(0), "{report:?}");
    let report = report.json();
    let checks = report["checks"].as_array().unwrap();
    let send = checks.iter().find(|one| one["check"] == "operations/send");
    assert_eq!(send.unwrap()["outcome"], "pass", "{report}");
}

#[test]
fn seed_0_38_answers_are_printed_from_every_place() {
    for (answer, text) in [
        (Answer::Output, "from output: hi"),
        (Answer::Artifact, "from artifact: hi"),
    ] {
        let server = KaosServer::start(answer);
        for stream in [&["--stream"][..], &[]] {
            let args = [&["send", "hi", "--a2a-version", "auto"], stream].concat();
            let sent = run_at(&server.url, &args);
            assert!(sent.out.contains(&format!("  {text}\n")), "{sent:?}");
        }
        assert_eq!(server.params("SendMessage").len(), 2);
    }
    let server = KaosServer::start(Answer::Nowhere);
    let sent = run_at(&server.url, &["send", "hi", "--a2a-version", "auto"]);
    assert!(sent.err.contains("without any content"), "{sent:?}");
    for refusal in [Answer::InternalError, Answer::Status(500)] {
        let server = KaosServer::start(refusal);
        let sent = run_at(&server.url, &["send", "hi", "--a2a-version", "auto"]);
        assert!(sent.err.contains("Error: InternalError"), "{sent:?}");
    }
}

#[test]
fn seed_4_36_selectools_agent_answers_below_the_address_of_its_card() {
    let answer = |request: &RecordedRequest, _: usize| match request.line.as_str() {
        "POST /a2a" => json_reply(200, &seed("selectools-send-response")),
        _ => json_reply(404, &json!({"detail": "Not Found"})),
    };
    let agent = ScriptedAgent::new(|_| seed("selectools-card"), answer);
    for version in ["auto", "0.3", "0.2"] {
        for args in [&["send", "hi"][..], &["task", "get", "9f1c"]] {
            let args = [args, &["--a2a-version", version]].concat();
            let output = run_at(&agent.url, &args);
            assert_eq!(output.code, Some(0), "{output:?}");
            assert!(
                output.out.contains("  Quantum computing trends\n"),
                "{output:?}"
            );
        }
    }
    let report = run_at(
        &agent.url,
        &["conformance", "-o", "json", "--a2a-version", "auto"],
    );
    assert_eq!(report.code, Some(0), "{report:?}");
}

#[test]
fn seed_4_36_a_card_file_without_a_url_is_refused() {
    let card = seed("selectools-card").to_string();
    let args = ["send", "hi", "-a", "./card.json", "--a2a-version", "auto"];
    let output = verb(&args).file("card.json", &card).run();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("A2ACLI_ERR_CARD_INVALID"), "{output:?}");
    assert!(output.err.contains("-a <url>"), "{output:?}");
}

/// The stream of agno 3.1.10, as 1.0 events.
fn agno_events() -> Vec<Value> {
    let status = |state: &str| json!({"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": state}}});
    let message = |text: &str| json!({"messageId": "m", "role": "ROLE_AGENT", "taskId": "t-1", "contextId": "c-1", "parts": [{"text": text}]});
    let mut task = scripted_agent::task("TASK_STATE_COMPLETED");
    task["history"] = json!([message("Hello there")]);
    vec![
        status("TASK_STATE_WORKING"),
        json!({"message": message("Hello")}),
        json!({"message": message(" there")}),
        status("TASK_STATE_COMPLETED"),
        json!({"task": task}),
    ]
}

#[test]
fn messages_beside_a_task_are_part_of_the_result() {
    let agent = ScriptedAgent::new(scripted_agent::streaming, |request, _| {
        match request.method().as_str() {
            "SendStreamingMessage" => events(&agno_events()),
            _ => scripted_agent::error(-32601, "Method not found"),
        }
    });
    let text = run_at(&agent.url, &["send", "hi"]);
    assert!(text.out.contains("  Hello there\n"), "{text:?}");
    let json = run_at(&agent.url, &["send", "hi", "-o", "json"]).json();
    assert_eq!(
        json["task"]["history"][0]["parts"][0]["text"],
        "Hello there"
    );
    let lines = run_at(&agent.url, &["send", "hi", "-o", "json", "--stream"]).lines();
    assert_eq!(lines, agno_events(), "every event is printed");
}

#[test]
fn messages_survive_a_copy_of_the_task_without_them() {
    let agent = ScriptedAgent::new(scripted_agent::streaming, |request, _| {
        match request.method().as_str() {
            "SendStreamingMessage" => events(&agno_events()[..4]),
            _ => result(&scripted_agent::task("TASK_STATE_COMPLETED")),
        }
    });
    let text = run_at(&agent.url, &["send", "hi"]);
    assert!(text.out.contains("  Hello there\n"), "{text:?}");
}

#[test]
fn seed_1_59_extended_card_of_0_2_is_read_with_a_get() {
    let agent = ScriptedAgent::new(
        |url| {
            json!({"name": "Old", "url": format!("{url}/a2a"), "version": "1", "supportsAuthenticatedExtendedCard": true,
                "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}}})
        },
        |request, _| match request.line.as_str() {
            "GET /agent/authenticatedExtendedCard" => {
                json_reply(200, &json!({"name": "Extended", "url": "/a2a"}))
            }
            _ => scripted_agent::error(-32601, "Method not found"),
        },
    );
    let args = [
        "card",
        "get",
        "--extended",
        "--a2a-version",
        "0.3",
        "--bearer",
        "hunter22",
    ];
    let card = run_at(&agent.url, &args);
    assert_eq!(card.field("Agent"), "Extended", "{card:?}");
    let last = agent.requests().pop().unwrap();
    assert!(
        last.head.contains("authorization: bearer hunter22"),
        "{last:?}"
    );
}

#[test]
fn seed_3_19_push_config_that_is_only_confirmed_is_printed() {
    let card =
        |url: &str| scripted_agent::card(url, json!({"capabilities": {"pushNotifications": true}}));
    let agent = ScriptedAgent::new(card, |request, _| match request.method().as_str() {
        "CreateTaskPushNotificationConfig" => result(&json!({"success": true})),
        "GetTask" => result(&scripted_agent::task("TASK_STATE_WORKING")),
        _ => scripted_agent::error(-32601, "Method not found"),
    });
    let args = [
        "task",
        "push-config",
        "create",
        "t-1",
        "--url",
        "https://client.com/webhook",
    ];
    let created = run_at(&agent.url, &args);
    assert_eq!(
        created.field("Url"),
        "https://client.com/webhook",
        "{created:?}"
    );
    assert_eq!(created.field("Task"), "t-1");
}

/// A task of 0.3 HTTP+JSON with one file, whose bytes are base64 text as the Python SDKs write it.
fn task_with_file() -> Value {
    // "hello", encoded twice.
    let file = json!({"fileWithBytes": "YUdWc2JHOD0=", "mimeType": "text/plain", "name": "f.txt"});
    let artifact = json!({"artifactId": "a", "parts": [{"file": file}]});
    json!({"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]})
}

#[test]
fn download_writes_the_bytes_that_a_python_agent_meant() {
    let card = |url: &str| json!({"name": "Old", "url": url, "version": "1", "protocolVersion": "0.3.0", "preferredTransport": "HTTP+JSON"});
    let agent = ScriptedAgent::new(card, |_, _| json_reply(200, &task_with_file()));
    for (encoding, expected) in [
        ("base64", "hello"),
        ("raw", "aGVsbG8="),
        ("auto", "aGVsbG8="),
    ] {
        let args = [
            "task",
            "download",
            "t-1",
            "-a",
            &agent.url,
            "--a2a-version",
            "0.3",
            "--v03-files",
            encoding,
        ];
        let (output, folder) = verb(&args).keep();
        assert_eq!(output.code, Some(0), "{output:?}");
        let written = std::fs::read_to_string(folder.path().join("f.txt")).unwrap();
        assert_eq!(written, expected, "{encoding}");
    }
    let args = [
        "task",
        "download",
        "t-1",
        "-a",
        &agent.url,
        "--v03-files",
        "gzip",
    ];
    let (output, folder) = verb(&args).keep();
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.err.contains("must be auto, raw or base64"),
        "{output:?}"
    );
    assert!(!folder.path().join("f.txt").exists());
}
