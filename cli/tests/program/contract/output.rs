//! Output formats and streams.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::run::{DEMO, finish, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};

#[test]
fn out_001_results_and_notes_are_separate() {
    for (text, state) in [
        ("hi", "COMPLETED"),
        ("fail", "FAILED"),
        ("ask", "INPUT_REQUIRED"),
    ] {
        let state = format!("TASK_STATE_{state}");
        let output = run_at(&DEMO, &["send", "-o", "json", text]);
        let task = output.json()["task"].clone();
        assert_eq!(task["status"]["state"], json!(state));
        assert!(task["id"].is_string() && task["contextId"].is_string());
        let output = run_at(&DEMO, &["send", text]);
        assert!(!output.field("Task").is_empty() && !output.field("Context").is_empty());
        assert_eq!(output.field("State"), state);
    }
}

#[test]
fn out_002_json_is_one_document_of_the_protocol_and_nothing_else() {
    let output = run_at(&DEMO, &["send", "-o", "json", "stream 5"]);
    let json = output.json();
    assert_eq!(
        json.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["task"]
    );
    let members: Vec<_> = json["task"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    for member in members {
        assert!(
            [
                "id",
                "contextId",
                "status",
                "artifacts",
                "history",
                "metadata"
            ]
            .contains(&member),
            "{member}"
        );
    }
    let output = run_at(&DEMO, &["task", "cancel", "-o", "json", "nope"]);
    assert_eq!(
        output
            .json()
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["error"]
    );
}

#[test]
fn out_003_each_event_is_printed_immediately() {
    let mut run = verb(&["send", "-a", &DEMO, "-o", "json", "--stream", "slow 2"]);
    run.command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null());
    let mut child = run.command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    let id = first["task"]["id"].as_str().unwrap();
    let state = run_at(&DEMO, &["task", "get", id])
        .field("State")
        .to_owned();
    assert!(
        state != "TASK_STATE_COMPLETED",
        "the first line came while the task was at work"
    );
    let rest: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert_eq!(
        rest.last().unwrap()["statusUpdate"]["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
    child.wait().unwrap();
}

#[test]
fn out_005_s55_agent_text_cannot_control_the_terminal_or_forge_a_field() {
    let hostile = json!({"id": "t\u{1b}[2J", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "name": "n\nState: FORGED", "parts": [
            {"text": "x\u{1b}[31m\u{9b}\n\nState: TASK_STATE_FORGED\r"},
            {"data": {"k": "\u{202e}\u{7f}"}},
            {"raw": "aGk=", "filename": "f\u{7}.txt"}]}]});
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_with(hostile));
    for format in ["text", "json"] {
        let output = run_at(&peer.url, &["send", "-o", format, "--verbose", "hi"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let odd = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(
            !output.out.contains(odd) && !output.err.contains(odd),
            "{output:?}"
        );
    }
    let output = run_at(&peer.url, &["send", "hi"]);
    assert_eq!(output.fields("State"), ["TASK_STATE_COMPLETED"]);
    let json = run_at(&peer.url, &["send", "-o", "json", "hi"]).json();
    assert_eq!(json["task"]["id"], "t\u{1b}[2J", "the data is unchanged");
}

#[test]
fn out_005_a_stream_in_text_has_the_same_form_and_its_end_restates_all() {
    let output = run_at(&DEMO, &["send", "--stream", "hi"]);
    assert_eq!(output.fields("Event"), ["task", "artifact", "status"]);
    let task = output.field("Task");
    let context = output.field("Context");
    let end = format!(
        "Event: status\nTask: {task}\nContext: {context}\nState: TASK_STATE_COMPLETED\nResume: "
    );
    assert!(output.out.contains(&end), "{}", output.out);
}

#[test]
fn out_007_debug_logs_requests_to_stderr_only() {
    let plain = run_at(&DEMO, &["send", "-o", "json", "reply"]);
    let output = run_at(&DEMO, &["send", "-o", "json", "--debug", "reply"]);
    assert_eq!(
        output.json()["message"]["parts"],
        plain.json()["message"]["parts"]
    );
    for part in [
        "> GET http://",
        "> a2a-version: 1.0",
        "< 200",
        r#""method":"SendStreamingMessage""#,
        "ms ",
    ] {
        assert!(output.err.contains(part), "{part}: {}", output.err);
    }
}

#[test]
fn exit_002_the_exit_code_does_not_depend_on_the_task_outcome() {
    for (text, state) in [
        ("fail", "FAILED"),
        ("reject", "REJECTED"),
        ("auth", "AUTH_REQUIRED"),
        ("panic", "FAILED"),
    ] {
        for more in [&[][..], &["--stream"], &["-o", "json"]] {
            let output = run_at(&DEMO, &[&["send", text], more].concat());
            assert_eq!(output.code, Some(0), "{output:?}");
            assert!(
                output
                    .err
                    .contains(&format!("warning: the task is TASK_STATE_{state}\n")),
                "{}",
                output.err
            );
        }
    }
}

#[test]
fn out_001_verbose_shows_more_in_text_and_changes_no_json() {
    let output = run_at(&DEMO, &["send", "--verbose", "reply"]);
    assert!(
        output.out.contains("Message: agent ") && output.out.contains("Part: 0 "),
        "{}",
        output.out
    );
    let json = |more: &[&str]| {
        let output = run_at(&DEMO, &[&["send", "-o", "json", "reply"], more].concat());
        output.json()["message"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(json(&["--verbose"]), json(&[]));
}

#[test]
fn a_closed_stdout_is_not_reported() {
    let mut run = verb(&[
        "send",
        "-a",
        &DEMO,
        "-o",
        "json",
        "--stream",
        "stream 500 4000",
    ]);
    run.command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null());
    let mut child = run.command.spawn().unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    drop(out);
    // `finish` needs a stdout.
    let mut err = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut err).unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), err.as_str()),
        (Some(141), "")
    );
}

#[cfg(unix)]
#[test]
fn task_poll_002_an_interrupt_leaves_the_ids_and_the_resume_command() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        for format in ["text", "json"] {
            let (mut child, _folder) =
                verb(&["send", "-a", &DEMO, "-o", format, "slow 60"]).start();
            // The ids are printed before the end: to stdout as text, with JSON to stderr.
            let mut early = String::new();
            match format {
                "text" => {
                    let mut out = BufReader::new(child.stdout.take().unwrap());
                    out.read_line(&mut early).unwrap();
                    child.stdout = Some(out.into_inner());
                }
                _ => {
                    let mut err = BufReader::with_capacity(1, child.stderr.take().unwrap());
                    err.read_line(&mut early).unwrap();
                    child.stderr = Some(err.into_inner());
                }
            }
            let id = early.trim().strip_prefix("Task: ").unwrap().to_owned();
            let pid = child.id().to_string();
            assert!(
                std::process::Command::new("kill")
                    .args([signal, &pid])
                    .status()
                    .unwrap()
                    .success()
            );
            let output = finish(child);
            assert_eq!(output.code, Some(code), "{output:?}");
            let way_on = format!("attache task get -a {} --wait {id}", &**DEMO);
            match format {
                "text" => assert!(
                    output.err.contains(&format!("Hint: {way_on}\n")),
                    "{output:?}"
                ),
                _ => {
                    let error = output.json()["error"].clone();
                    assert_eq!(
                        (&error["code"], &error["hint"]),
                        (&json!("ATTACHE_ERR_INTERRUPTED"), &json!(way_on))
                    );
                }
            }
            let state = run_at(&DEMO, &["task", "get", &id])
                .field("State")
                .to_owned();
            assert_eq!(state, "TASK_STATE_WORKING", "it goes on without us");
            run_at(&DEMO, &["task", "cancel", &id]);
        }
    }
}
