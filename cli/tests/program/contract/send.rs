//! `attache send`.

use serde_json::json;

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent, events, open_stream, result, status, task};

#[test]
fn send_001_out_001_a_message_starts_an_interaction_and_ids_and_state_are_printed() {
    let output = run_at(&DEMO, &["send", "hi"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let task = output.field("Task");
    let context = output.field("Context");
    let artifact = output.field("Artifact");
    let url = &**DEMO;
    let expected = format!(
        "Task: {task}\nContext: {context}\nState: TASK_STATE_COMPLETED\nArtifact: {artifact}\nText:\n  hi\n\n\
         Resume: attache send -a {url} --context-id {context} '<message>'\n"
    );
    assert_eq!(output.out, expected);
    assert_eq!(output.err, "TASK_STATE_SUBMITTED\n");
}

#[test]
fn send_002_out_006_send_waits_by_default() {
    let output = run_at(&DEMO, &["send", "-o", "json", "slow 1"]);
    assert_eq!(
        output.json()["task"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
    for flag in [
        "--async",
        "--return-immediately",
        "--no-wait",
        "--async=true",
    ] {
        let output = run_at(&DEMO, &["send", flag, "-o", "json", "slow 60"]);
        assert_eq!(output.code, Some(0));
        let task = &output.json()["task"];
        assert!(
            task["id"].is_string() && task["contextId"].is_string(),
            "{task}"
        );
        assert_ne!(task["status"]["state"], "TASK_STATE_COMPLETED");
        assert!(
            output.err.contains("attache task get -a "),
            "{}",
            output.err
        );
    }
    let output = verb(&["send", "-a", &DEMO, "--wait", "hi"])
        .env("A2ACLI_ASYNC", "1")
        .run();
    assert_eq!(output.field("State"), "TASK_STATE_COMPLETED");
}

#[test]
fn send_003_out_003_a_stream_ends_with_the_final_event() {
    for binding in ["jsonrpc", "http+json", "grpc"] {
        let output = run_at(
            &DEMO,
            &[
                "send",
                "-o",
                "json",
                "--stream",
                "--transport",
                binding,
                "stream 3",
            ],
        );
        assert_eq!(output.code, Some(0), "{output:?}");
        let lines = output.lines();
        assert!(lines[0]["task"]["id"].is_string(), "{output:?}");
        assert!(
            lines
                .iter()
                .filter(|line| line.get("artifactUpdate").is_some())
                .count()
                >= 3
        );
        assert_eq!(
            lines.last().unwrap()["statusUpdate"]["status"]["state"],
            "TASK_STATE_COMPLETED"
        );
    }
}

#[test]
fn send_003_a_plain_message_is_the_only_line() {
    let output = run_at(&DEMO, &["send", "-o", "json", "--stream", "reply"]);
    let lines = output.lines();
    assert_eq!((output.code, lines.len()), (Some(0), 1));
    assert_eq!(
        lines[0]["message"]["parts"][0]["text"],
        "a plain message, and no task"
    );
    let output = run_at(&DEMO, &["send", "reply"]);
    assert!(
        output
            .out
            .contains("Message: agent\nText:\n  a plain message, and no task\n\n"),
        "{}",
        output.out
    );
    assert!(output.fields("Task").is_empty() && output.fields("State").is_empty());
}

#[test]
fn send_003_without_streaming_the_task_is_polled() {
    let answers = |asked: &scripted_agent::RecordedRequest, _| match asked.method().as_str() {
        "SendMessage" => result(&json!({"task": task("TASK_STATE_WORKING")})),
        "GetTask" => result(&task("TASK_STATE_COMPLETED")),
        other => panic!("{other}"),
    };
    let peer = ScriptedAgent::new(scripted_agent::plain, answers);
    let output = run_at(
        &peer.url,
        &[
            "send",
            "-o",
            "json",
            "--stream",
            "--poll-interval",
            "100ms",
            "hi",
        ],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    let states: Vec<_> = output
        .lines()
        .iter()
        .map(|line| line["task"]["status"]["state"].clone())
        .collect();
    assert_eq!(states, ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
    assert!(
        output.err.contains("does not support streaming"),
        "{}",
        output.err
    );
    assert_eq!(
        peer.posted_bodies()[0]["params"]["configuration"]["returnImmediately"],
        true
    );
}

#[test]
fn task_poll_004_a_broken_stream_is_resumed_to_the_end() {
    let answers = |asked: &scripted_agent::RecordedRequest, _| match asked.method().as_str() {
        "SendStreamingMessage" => events(&[json!({"task": task("TASK_STATE_WORKING")})]),
        "SubscribeToTask" => scripted_agent::error(-32004, "there is nothing to subscribe to"),
        "GetTask" => result(&task("TASK_STATE_COMPLETED")),
        other => panic!("{other}"),
    };
    let peer = ScriptedAgent::new(scripted_agent::streaming, answers);
    let output = run_at(&peer.url, &["send", "hi"]);
    assert_eq!(
        (output.code, output.field("State")),
        (Some(0), "TASK_STATE_COMPLETED"),
        "{output:?}"
    );
    let sent = peer
        .posted_bodies()
        .iter()
        .filter(|body| body["method"] == "SendStreamingMessage")
        .count();
    assert_eq!(sent, 1, "nothing is sent twice");
}

#[test]
fn task_poll_003_an_interruption_ends_the_wait_although_the_stream_stays_open() {
    for state in ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"] {
        let answers = move |asked: &scripted_agent::RecordedRequest, _: usize| match asked
            .method()
            .as_str()
        {
            "SendStreamingMessage" => {
                open_stream(&[json!({"task": task("TASK_STATE_WORKING")}), status(state)])
            }
            _ => result(&task(state)),
        };
        let peer = ScriptedAgent::new(scripted_agent::streaming, answers);
        let output = run_at(&peer.url, &["send", "hi"]);
        assert_eq!((output.code, output.field("State")), (Some(0), state));
        assert!(
            output.field("Resume").contains("--task-id t-1 '<message>'"),
            "{output:?}"
        );
        assert!(
            output
                .err
                .contains(&format!("warning: the task is {state}")),
            "{}",
            output.err
        );
    }
}

#[test]
fn task_poll_003_an_unspecified_state_is_not_final_and_is_printed_unchanged() {
    let answers =
        |asked: &scripted_agent::RecordedRequest, number| match (asked.method().as_str(), number) {
            ("SendMessage", _) => result(&json!({"task": task("TASK_STATE_UNSPECIFIED")})),
            ("GetTask", 0..4) => result(&task("TASK_STATE_UNSPECIFIED")),
            _ => result(&task("TASK_STATE_COMPLETED")),
        };
    let peer = ScriptedAgent::new(scripted_agent::plain, answers);
    let output = run_at(
        &peer.url,
        &[
            "send",
            "-o",
            "json",
            "--stream",
            "--poll-interval",
            "100ms",
            "hi",
        ],
    );
    let lines = output.lines();
    assert_eq!(
        lines[0]["task"]["status"]["state"],
        "TASK_STATE_UNSPECIFIED"
    );
    assert_eq!(
        lines.last().unwrap()["task"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
}

#[test]
fn send_004_artifacts_are_shown_and_no_part_is_lost() {
    let output = run_at(&DEMO, &["send", "file"]);
    assert_eq!(output.field("File"), "tides.csv (text/csv, 43 bytes)");
    let output = run_at(&DEMO, &["send", "data"]);
    assert!(output.out.contains("Data:\n  {\n"), "{}", output.out);
}

#[test]
fn send_005_a_media_type_belongs_to_the_part_flag_before_it() {
    let run = verb(&[
        "send",
        "-a",
        &DEMO,
        "-o",
        "json",
        "--text",
        "<b>",
        "--media-type",
        "text/html",
        "--file",
        "a.csv",
    ]);
    let output = run.file("a.csv", "x").run();
    let parts = &output.json()["task"]["artifacts"][0]["parts"];
    assert_eq!(parts[0]["mediaType"], "text/html", "{output:?}");
    assert_eq!(
        (&parts[1]["mediaType"], &parts[1]["filename"]),
        (&json!("text/csv"), &json!("a.csv"))
    );
    for wrong in [
        &["--media-type", "text/html", "--text", "a"][..],
        &["--text", "a", "--media-type", "a/b", "--media-type", "c/d"],
        &["--text", "a", "plain", "--media-type", "a/b"],
    ] {
        let output = run_at(&DEMO, &[&["send", "-o", "json"], wrong].concat());
        assert_eq!(output.json()["error"]["code"], "A2ACLI_ERR_USAGE");
        assert_eq!(output.code, Some(2));
    }
}

#[test]
fn send_006_parts_keep_the_order_of_the_command_line() {
    let args = [
        "send",
        "-a",
        &DEMO,
        "-o",
        "json",
        "--data",
        "-",
        "one",
        "--file",
        "https://x.example/f.pdf",
        "--text",
        "two",
        "--file",
        "a.bin",
    ];
    let output = verb(&args)
        .file("a.bin", "\u{1}")
        .stdin(r#"{"n": 12345678901234567890}"#)
        .run();
    let parts = output.json()["task"]["artifacts"][0]["parts"].clone();
    let kinds: Vec<_> = parts
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part.as_object().unwrap().keys().next().unwrap().clone())
        .collect();
    assert_eq!(parts[1]["text"], "one", "{output:?}");
    assert!(
        output.out.contains("12345678901234567890"),
        "no number is touched"
    );
    assert_eq!(parts[2]["url"], "https://x.example/f.pdf");
    assert_eq!(parts[3]["text"], "two");
    assert_eq!(parts[4]["mediaType"], "application/octet-stream");
    assert_eq!(kinds.len(), 5);
    for wrong in [
        &["--data", "-", "--data", "-"][..],
        &[],
        &["--data", "none.json"],
    ] {
        let output = verb(&[&["send", "-a", &DEMO], wrong].concat())
            .stdin("1")
            .run();
        assert_eq!(output.code, Some(2), "{wrong:?} {output:?}");
    }
}

#[test]
fn send_001_metadata_is_a_json_object_of_the_request() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let output = run_at(
        &peer.url,
        &[
            "send",
            "--metadata",
            r#"{"k":1}"#,
            "--message-id",
            "m-7",
            "hi",
        ],
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    let params = &peer.posted_bodies()[0]["params"];
    assert_eq!(
        (&params["metadata"], &params["message"]["messageId"]),
        (&json!({"k": 1}), &json!("m-7"))
    );
    assert_eq!(
        run_at(&peer.url, &["send", "--metadata", "[1]", "hi"]).code,
        Some(2)
    );
}
