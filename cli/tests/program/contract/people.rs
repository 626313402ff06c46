//! Output for people and shells: `-o plain`, `-o pretty`, `config set`. None of it is part of the CLI contract.

use serde_json::json;

use super::run::{DEMO, VerbOutput, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};
#[cfg(target_os = "linux")]
use crate::pty::Pty;

/// stdout and stderr with names in place of ids, times and the address.
fn golden(output: &VerbOutput) -> (String, String) {
    (normalized(&output.out), normalized(&output.err))
}

fn normalized(text: &str) -> String {
    let mut shown = String::new();
    for word in text
        .replace(&**DEMO, "<agent>")
        .split_inclusive([' ', '\n'])
    {
        let bare = word.trim_end_matches([' ', '\n']);
        let is_id = bare.len() == 36 && bare.matches('-').count() == 4;
        shown.push_str(if is_id { "<id>" } else { bare });
        shown.push_str(&word[bare.len()..]);
    }
    shown
}

#[test]
fn plain_output_is_the_answer_alone() {
    for (text, out, err) in [
        (
            "hello",
            "hello\n",
            "Task: <id>\nContext: <id>\nState: TASK_STATE_COMPLETED\n\
             Resume: attache send -a <agent> --context-id <id> '<message>'\n",
        ),
        (
            "ask",
            "What is your name?\n",
            "Task: <id>\nContext: <id>\nState: TASK_STATE_INPUT_REQUIRED\n\
             Resume: attache send -a <agent> --task-id <id> '<message>'\n",
        ),
        (
            "fail",
            "",
            "Task: <id>\nContext: <id>\nTASK_STATE_WORKING: trying\n\
             State: TASK_STATE_FAILED\nMessage: it did not work, as you asked\n\
             Resume: attache send -a <agent> --context-id <id> '<message>'\n",
        ),
        (
            "reply",
            "a plain message, and no task\n",
            "Context: <id>\nResume: attache send -a <agent> --context-id <id> '<message>'\n",
        ),
    ] {
        let output = run_at(&DEMO, &["send", "-o", "plain", text]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let (shown, notes) = golden(&output);
        // Which states are seen on the way depends on the speed of the agent.
        let is_state = |note: &&str| note.starts_with("TASK_STATE_") && !note.contains(": ");
        let notes: String = notes
            .split_inclusive('\n')
            .filter(|note| !is_state(note))
            .collect();
        assert_eq!((shown.as_str(), notes.as_str()), (out, err), "{text}");
    }
}

#[test]
fn plain_output_has_data_on_stdout_and_files_on_stderr() {
    let data = run_at(&DEMO, &["send", "-o", "plain", "data"]);
    let value: serde_json::Value = serde_json::from_str(&data.out).unwrap();
    assert_eq!(value["harbour"], "North");
    let file = run_at(&DEMO, &["send", "-o", "plain", "file"]);
    assert!(file.err.contains("File: tides.csv (text/csv, "), "{file:?}");
    assert!(!file.out.contains("tides.csv"), "{file:?}");
}

#[test]
fn plain_and_pretty_streams_concatenate_chunks() {
    for format in ["plain", "pretty"] {
        let output = run_at(&DEMO, &["send", "--stream", "-o", format, "stream 3"]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(
            output.out,
            "chunk 1 of 3 chunk 1chunk 2 of 3 chunk 2chunk 3 of 3 chunk 3\n"
        );
    }
}

#[test]
fn pretty_output_without_a_terminal_has_no_escape_sequences() {
    let output = run_at(&DEMO, &["send", "-o", "pretty", "hello"]);
    assert_eq!(
        golden(&output),
        (
            "hello\n".to_owned(),
            "\n✓ completed\n  task     <id>\n  context  <id>\n  next     attache send -a <agent> --context-id <id> \
             '<message>'\n"
                .to_owned()
        )
    );
    let failed = run_at(&DEMO, &["send", "-o", "pretty", "fail"]);
    let (out, err) = golden(&failed);
    assert_eq!(out, "");
    assert!(
        err.starts_with("trying\n✗ failed: it did not work, as you asked\n  task     <id>\n"),
        "{err}"
    );
}

#[test]
fn s55_controls_of_an_agent_do_not_reach_the_terminal() {
    let answer = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "a\u{1b}[2Jb\r\nc"}]}]});
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_with(answer));
    for format in ["plain", "pretty"] {
        let output = run_at(&peer.url, &["send", "-o", format, "hi"]);
        assert_eq!(output.out, "a\\u{1b}[2Jb\nc\n", "{output:?}");
    }
}

#[test]
fn pretty_errors_name_the_problem_and_the_next_step() {
    let output = run_at(&DEMO, &["task", "get", "-o", "pretty", "unknown"]);
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""));
    assert!(
        output.err.starts_with("✗ ") && output.err.contains("(TaskNotFoundError)\n  check the id"),
        "{output:?}"
    );
}

#[test]
fn unknown_formats_are_usage_errors() {
    for format in ["yaml", "jsonl", "PRETTY"] {
        let output = run_at(&DEMO, &["send", "-o", format, "hi"]);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(
            output.err.contains("must be text, json, plain or pretty"),
            "{output:?}"
        );
    }
}

#[test]
fn a_stored_default_for_people_does_not_change_scripts() {
    let (output, folder) = verb(&["config", "set", "output", "pretty"]).keep();
    assert_eq!(output.code, Some(0), "{output:?}");
    let file = folder.path().join(".config/a2a-cli/.env");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "ATTACHE_OUTPUT=pretty\n"
    );
    let home = folder.path().display().to_string();
    let script = verb(&["send", "-a", &DEMO, "hi"]).env("HOME", &home).run();
    assert!(script.out.starts_with("Task: "), "{script:?}");
    #[cfg(target_os = "linux")]
    {
        let person = verb(&["send", "-a", &DEMO, "hi"]).env("HOME", &home);
        let (status, screen) = Pty::start(&person.command, 80).finish();
        assert!(status.success(), "{screen}");
        assert!(screen.contains("✓ completed"), "{screen}");
        let undone = verb(&["send", "-a", &DEMO, "-o", "text", "hi"]).env("HOME", &home);
        let (_, screen) = Pty::start(&undone.command, 80).finish();
        assert!(screen.starts_with("Task: "), "{screen}");
    }
    let unset = verb(&["config", "unset", "output"])
        .env("HOME", &home)
        .run();
    assert_eq!(unset.code, Some(0), "{unset:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn only_valid_defaults_are_stored() {
    for (name, value) in [
        ("output", "yaml"),
        ("timeout", "often"),
        ("bearer", "hunter22"),
        ("context-id", "c"),
        ("nonsense", "x"),
    ] {
        let (output, folder) = verb(&["config", "set", name, value]).keep();
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(!folder.path().join(".config").exists(), "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_shows_styles_unless_no_color_is_set() {
    for (no_color, has_styles) in [("", true), ("1", false)] {
        let run = verb(&["send", "-a", &DEMO, "-o", "pretty", "# Title"]);
        let mut command = run.command;
        command.env("NO_COLOR", no_color);
        let mut pty = Pty::start(&command, 80);
        pty.wait_for("✓ completed");
        assert_eq!(
            pty.raw().contains("\u{1b}[1m# Title\u{1b}[0m"),
            has_styles,
            "{:?}",
            pty.raw()
        );
        pty.finish();
    }
}

#[test]
fn pretty_task_list_is_a_table() {
    let sent = run_at(&DEMO, &["send", "-o", "json", "hello to the table"]);
    let task = sent.json()["task"].clone();
    let context = task["contextId"].as_str().unwrap();
    let list = run_at(
        &DEMO,
        &[
            "task",
            "list",
            "-o",
            "pretty",
            "--all",
            "--context-id",
            context,
        ],
    );
    let lines: Vec<_> = list.out.lines().collect();
    assert_eq!(lines.len(), 2, "{list:?}");
    assert!(
        lines[0].starts_with("AGE  STATE        TASK ") && lines[0].ends_with("FIRST WORDS"),
        "{list:?}"
    );
    let id = task["id"].as_str().unwrap();
    assert!(
        lines[1].ends_with(&format!("s  ✓ completed  {id}  hello to the table")),
        "{list:?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_pretty_send_ends_its_status_line_and_names_the_next_command() {
    let run = verb(&["send", "-a", &DEMO, "-o", "pretty", "slow 60"]);
    let mut pty = Pty::start(&run.command, 80);
    pty.wait_for("1 of 60 seconds");
    pty.press("\u{3}");
    let before =
        pty.wait_for("✗ interrupted; the task was not canceled (ATTACHE_ERR_INTERRUPTED)\n");
    assert!(before.contains("^C"), "{before:?}");
    assert!(
        pty.raw().contains("\r\u{1b}[K\u{1b}[31m✗"),
        "{:?}",
        pty.raw()
    );
    let (status, rest) = pty.finish();
    assert_eq!(status.code(), Some(130));
    let id = rest.split("--wait ").nth(1).unwrap().trim().to_owned();
    let canceled = run_at(&DEMO, &["task", "cancel", &id]);
    assert_eq!(canceled.field("State"), "TASK_STATE_CANCELED");
}

#[test]
fn exit_status_reports_the_outcome_of_a_send() {
    for (text, code) in [
        ("hello", 0),
        ("reply", 0),
        ("fail", 10),
        ("reject", 11),
        ("ask", 13),
        ("auth", 14),
    ] {
        let output = run_at(&DEMO, &["send", "--exit-status", text]);
        assert_eq!(output.code, Some(code), "{output:?}");
        assert_eq!(run_at(&DEMO, &["send", text]).code, Some(0), "{text}");
    }
}

#[test]
fn card_lint_fails_if_the_card_violates_the_schema() {
    let card = |url: &str| scripted_agent::card(url, json!({"skills": "none"}));
    let peer = ScriptedAgent::new(card, scripted_agent::answer_completed());
    let output = run_at(&peer.url, &["card", "lint"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.out.contains("Error: "), "{output:?}");
}

#[test]
fn bare_attache_and_help_print_the_commands() {
    let bare = verb(&[]).run();
    assert_eq!((bare.code, bare.err.as_str()), (Some(0), ""), "{bare:?}");
    for command in ["send", "chat", "serve", "All commands:  attache help"] {
        assert!(bare.out.contains(command), "{}", bare.out);
    }
    let all = verb(&["help"]).run();
    for command in ["conformance", "backup", "attache help options"] {
        assert!(all.out.contains(command), "{}", all.out);
    }
    let version = verb(&["-V"]).run();
    assert_eq!(version.out, verb(&["--version"]).run().out);
    let unknown = verb(&["help", "nonsense"]).run();
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}

#[test]
fn common_options_have_a_page_of_their_own() {
    let page = verb(&["help", "options"])
        .env("A2ACLI_POLL_INTERVAL", "7s")
        .run();
    assert_eq!(page.code, Some(0), "{page:?}");
    for text in [
        "-a, --agent-card <REF>",
        "--bearer <TOKEN>",
        "[A2ACLI_TIMEOUT]",
        "[ATTACHE_JWKS]",
        "poll-interval: 7s (from A2ACLI_POLL_INTERVAL)",
    ] {
        let words = page.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(text), "{text}: {}", page.out);
    }
    let send = verb(&["send", "--help"]).run().out;
    assert!(
        send.contains("--exit-status") && send.contains("--stream"),
        "{send}"
    );
    assert!(!send.contains("--jwks"), "{send}");
}
