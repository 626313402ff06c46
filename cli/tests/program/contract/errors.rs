//! Errors and exit codes.

use serde_json::json;

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent, error};

#[test]
fn out_004_an_error_replaces_the_result_in_one_shape() {
    let output = run_at(&DEMO, &["task", "get", "nope", "-o", "json"]);
    let json = output.json();
    let members: Vec<_> = json["error"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(members, ["a2aCode", "code", "hint", "message"]);
    let text = run_at(&DEMO, &["task", "get", "nope"]);
    assert_eq!((text.code, text.out.as_str()), (Some(1), ""));
    assert!(
        text.err.starts_with("Error: TaskNotFoundError\nMessage: ")
            && text.err.contains("\nHint: "),
        "{text:?}"
    );
    let line = run_at(&DEMO, &["task", "get", "nope", "-o", "json", "--stream"]);
    assert_eq!(line.out.lines().count(), 1);
}

#[test]
fn out_004_protocol_errors_keep_their_names_on_every_binding() {
    for (binding, code) in [
        ("jsonrpc", json!(-32001)),
        ("http+json", json!(404)),
        ("grpc", json!("NOT_FOUND")),
    ] {
        let error = run_at(
            &DEMO,
            &["task", "get", "nope", "-o", "json", "--transport", binding],
        )
        .json()["error"]
            .clone();
        assert_eq!(
            (&error["code"], &error["a2aCode"]),
            (&json!("TaskNotFoundError"), &code),
            "{binding}"
        );
    }
}

#[test]
fn exit_001_each_condition_has_its_code_and_its_exit() {
    for (answer, name, exit) in [
        (-32001, "TaskNotFoundError", 1),
        (-32005, "ContentTypeNotSupportedError", 1),
        (-32006, "InvalidAgentResponseError", 1),
        (-32009, "VersionNotSupportedError", 1),
        (-32601, "MethodNotFoundError", 1),
        (-32602, "InvalidParamsError", 1),
        (-32603, "InternalError", 1),
        (-32050, "A2ACLI_ERR_INTERNAL", 1),
    ] {
        let peer = ScriptedAgent::new(scripted_agent::plain, move |_, _| error(answer, "no"));
        let output = run_at(&peer.url, &["send", "-o", "json", "hi"]);
        assert_eq!(
            (output.code, &output.json()["error"]["code"]),
            (Some(exit), &json!(name)),
            "{answer}"
        );
    }
    let peer = ScriptedAgent::new(scripted_agent::plain, |_, _| {
        scripted_agent::json_reply(401, &json!({}))
    });
    let missing = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    assert_eq!(
        (missing.code, &missing.json()["error"]["code"]),
        (Some(4), &json!("A2ACLI_ERR_CREDENTIALS_MISSING"))
    );
    let failed = run_at(
        &peer.url,
        &["send", "-o", "json", "--bearer", "wrong-token", "hi"],
    );
    assert_eq!(
        (failed.code, &failed.json()["error"]["code"]),
        (Some(4), &json!("A2ACLI_ERR_AUTH_FAILED"))
    );
    assert_eq!(
        failed.json()["error"]["a2aCode"].as_i64().map(|_| ()),
        Some(())
    );
}

#[test]
fn exit_001_usage_errors_have_the_requested_format() {
    for args in [
        &["send", "--nonsense", "-o", "json"][..],
        &["-o", "json", "nonsense"],
        &["task", "get", "-o=json", "--history", "x"],
        &[
            "send",
            "--output=json",
            "--wait",
            "--async",
            "-a",
            "x",
            "hi",
        ],
        &["send", "-ojson", "--timeout", "soon", "-a", "x", "hi"],
        &["send", "-o", "json", "-a", "x"],
        &["task", "-o", "json"],
    ] {
        let output = verb(args).run();
        assert_eq!(
            (output.code, &output.json()["error"]["code"]),
            (Some(2), &json!("A2ACLI_ERR_USAGE")),
            "{args:?}"
        );
    }
    let output = verb(&["nonsense"]).env("A2ACLI_OUTPUT", "json").run();
    assert_eq!(output.json()["error"]["code"], "A2ACLI_ERR_USAGE");
    for format in ["jsonl", "yaml"] {
        let output = verb(&["send", "-o", format, "hi"]).run();
        assert_eq!(output.code, Some(2));
        assert!(
            output.err.starts_with("Error: A2ACLI_ERR_USAGE\n"),
            "{}",
            output.err
        );
    }
}

#[test]
fn send_001_a_message_that_may_have_arrived_is_not_resent() {
    let peer = ScriptedAgent::new(scripted_agent::plain, |_, _| {
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec()
    });
    let output = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &output.json()["error"];
    assert_eq!(
        (output.code, &error["code"]),
        (Some(3), &json!("A2ACLI_ERR_UNREACHABLE")),
        "{output:?}"
    );
    let id = peer.posted_bodies()[0]["params"]["message"]["messageId"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains(&format!("--message-id {id}")),
        "{error}"
    );
    assert_eq!(peer.posted_bodies().len(), 1);
}

#[test]
fn cli_001_help_and_version_are_there_with_the_effective_defaults() {
    for args in [
        &["help"][..],
        &["--help"],
        &["send", "--help"],
        &["help", "task", "get"],
        &["task", "list", "-h"],
    ] {
        let output = verb(args).run();
        assert_eq!(
            (output.code, output.err.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
        assert!(output.out.contains("Usage: attache"), "{}", output.out);
    }
    for flag in ["-v", "--version"] {
        assert_eq!(
            verb(&[flag]).run().out,
            format!("attache {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
    let output = verb(&["send", "--help"]).env("A2ACLI_OUTPUT", "json").run();
    assert!(
        output.out.contains("output: json (from A2ACLI_OUTPUT)"),
        "{}",
        output.out
    );
    assert!(
        output.out.contains("process list"),
        "exposure is documented: {}",
        output.out
    );
    let broken = verb(&["send", "--help"])
        .file(".env", "A2ACLI_OUTPUT=yaml\n")
        .run();
    assert_eq!(broken.code, Some(0));
}

#[test]
fn default_001_common_flags_may_precede_the_verb() {
    let output = verb(&[
        "-a",
        &DEMO,
        "-o",
        "json",
        "--transport",
        "rest",
        "send",
        "hi",
    ])
    .run();
    assert_eq!(
        output.json()["task"]["status"]["state"],
        "TASK_STATE_COMPLETED",
        "{output:?}"
    );
}

#[test]
fn cli_002_a_script_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = verb(&["completion", shell]).run();
        assert_eq!(output.code, Some(0));
        assert!(
            output.out.contains("push-config") && output.out.contains("agent-card"),
            "{shell}"
        );
    }
    assert_eq!(verb(&["completion", "cmd"]).run().code, Some(2));
}
