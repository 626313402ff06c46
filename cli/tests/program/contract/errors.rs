//! What goes wrong, and how the program ends.

use serde_json::json;

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent, error};

#[test]
fn out_004_an_error_replaces_the_result_in_one_shape() {
    let said = run_at(&DEMO, &["task", "get", "nope", "-o", "json"]);
    let json = said.json();
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
        let said = run_at(&peer.url, &["send", "-o", "json", "hi"]);
        assert_eq!(
            (said.code, &said.json()["error"]["code"]),
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
fn exit_001_what_is_not_understood_is_a_usage_error_in_the_form_that_was_asked_for() {
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
        let said = verb(args).run();
        assert_eq!(
            (said.code, &said.json()["error"]["code"]),
            (Some(2), &json!("A2ACLI_ERR_USAGE")),
            "{args:?}"
        );
    }
    let said = verb(&["nonsense"]).env("A2ACLI_OUTPUT", "json").run();
    assert_eq!(said.json()["error"]["code"], "A2ACLI_ERR_USAGE");
    for format in ["jsonl", "yaml"] {
        let said = verb(&["send", "-o", format, "hi"]).run();
        assert_eq!(said.code, Some(2));
        assert!(
            said.err.starts_with("Error: A2ACLI_ERR_USAGE\n"),
            "{}",
            said.err
        );
    }
}

#[test]
fn send_001_a_message_that_may_have_arrived_is_not_sent_again_unasked() {
    let peer = ScriptedAgent::new(scripted_agent::plain, |_, _| {
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec()
    });
    let said = run_at(&peer.url, &["send", "-o", "json", "hi"]);
    let error = &said.json()["error"];
    assert_eq!(
        (said.code, &error["code"]),
        (Some(3), &json!("A2ACLI_ERR_UNREACHABLE")),
        "{said:?}"
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
        let said = verb(args).run();
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{args:?}");
        assert!(said.out.contains("Usage: attache"), "{}", said.out);
    }
    for flag in ["-v", "--version"] {
        assert_eq!(
            verb(&[flag]).run().out,
            format!("attache {}\n", env!("CARGO_PKG_VERSION"))
        );
    }
    let said = verb(&["send", "--help"]).env("A2ACLI_OUTPUT", "json").run();
    assert!(
        said.out.contains("output: json (from A2ACLI_OUTPUT)"),
        "{}",
        said.out
    );
    assert!(
        said.out.contains("process list"),
        "exposure is documented: {}",
        said.out
    );
    let broken = verb(&["send", "--help"])
        .file(".env", "A2ACLI_OUTPUT=yaml\n")
        .run();
    assert_eq!(broken.code, Some(0));
}

#[test]
fn default_001_what_every_verb_takes_may_stand_before_it() {
    let said = verb(&[
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
        said.json()["task"]["status"]["state"],
        "TASK_STATE_COMPLETED",
        "{said:?}"
    );
}

#[test]
fn cli_002_a_script_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let said = verb(&["completion", shell]).run();
        assert_eq!(said.code, Some(0));
        assert!(
            said.out.contains("push-config") && said.out.contains("agent-card"),
            "{shell}"
        );
    }
    assert_eq!(verb(&["completion", "cmd"]).run().code, Some(2));
}
