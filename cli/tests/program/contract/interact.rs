//! Continuation of tasks and contexts.

use serde_json::json;

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent, error};

#[test]
fn interact_001_a_context_is_continued() {
    let first = run_at(&DEMO, &["send", "one"]);
    let context = first.field("Context");
    let second = run_at(&DEMO, &["send", "--context-id", context, "two"]);
    assert_eq!(second.field("Context"), context);
    assert_ne!(second.field("Task"), first.field("Task"));
}

#[test]
fn interact_002_a_task_is_continued_with_or_without_its_context() {
    for with_context in [false, true] {
        let question = run_at(&DEMO, &["send", "ask"]);
        assert_eq!(question.field("State"), "TASK_STATE_INPUT_REQUIRED");
        let task = question.field("Task");
        let context = question.field("Context");
        let context = if with_context {
            vec!["--context-id", context]
        } else {
            Vec::new()
        };
        let answered = run_at(
            &DEMO,
            &[&["send", "--task-id", task], &context[..], &["Ada"]].concat(),
        );
        assert_eq!(
            (answered.field("Task"), answered.field("State")),
            (task, "TASK_STATE_COMPLETED")
        );
        assert!(answered.out.contains("  Hello, Ada!\n"), "{}", answered.out);
    }
}

#[test]
fn interact_002_a_rejected_id_is_an_error_and_never_a_new_task() {
    for (code, name) in [
        (-32001, "TaskNotFoundError"),
        (-32602, "InvalidParamsError"),
        (-32004, "UnsupportedOperationError"),
    ] {
        let peer = ScriptedAgent::new(scripted_agent::plain, move |_, _| error(code, "no"));
        let output = run_at(
            &peer.url,
            &[
                "send",
                "-o",
                "json",
                "--task-id",
                "t-9",
                "--context-id",
                "c-9",
                "hi",
            ],
        );
        let error = &output.json()["error"];
        assert_eq!(
            (output.code, &error["code"], &error["a2aCode"]),
            (Some(1), &json!(name), &json!(code))
        );
        assert!(
            error["hint"].as_str().unwrap().contains("--debug"),
            "{error}"
        );
        let sent = peer.posted_bodies();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let message = &sent[0]["params"]["message"];
        assert_eq!(
            (&message["taskId"], &message["contextId"]),
            (&json!("t-9"), &json!("c-9"))
        );
    }
}

#[test]
fn interact_003_no_id_is_invented() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    run_at(&peer.url, &["send", "hi"]);
    run_at(&peer.url, &["send", "--context-id", "my context", "hi"]);
    let sent: Vec<_> = peer
        .posted_bodies()
        .into_iter()
        .filter(|body| body["method"] == "SendMessage")
        .collect();
    let members = |at: usize| sent[at]["params"]["message"].as_object().unwrap().clone();
    assert!(!members(0).contains_key("taskId") && !members(0).contains_key("contextId"));
    assert_eq!(members(1)["contextId"], "my context");
    assert!(!members(1).contains_key("taskId"));
}

#[test]
fn interact_004_the_resume_command_works_as_printed() {
    let question = run_at(&DEMO, &["send", "ask"]);
    let command = question.field("Resume").replace("'<message>'", "Ada");
    let words = shell_words::split(&command).unwrap();
    assert_eq!(words[0], "attache");
    let words: Vec<_> = words[1..].iter().map(String::as_str).collect();
    let answered = verb(&words).run();
    assert_eq!(
        answered.field("State"),
        "TASK_STATE_COMPLETED",
        "{answered:?}"
    );
    let json = run_at(&DEMO, &["send", "-o", "json", "ask"]);
    assert!(
        json.err
            .lines()
            .any(|line| line.starts_with("Resume: attache send -a ")),
        "{}",
        json.err
    );
}

#[test]
fn interact_004_hostile_ids_are_quoted() {
    let hostile = json!({"id": "x; rm -rf '~'", "contextId": "$(id)", "status": {"state": "TASK_STATE_COMPLETED"}});
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_with(hostile));
    let output = run_at(&peer.url, &["send", "hi"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let words = shell_words::split(output.field("Resume")).unwrap();
    assert!(
        words.contains(&"$(id)".to_owned()) && output.field("Resume").contains("'$(id)'"),
        "{output:?}"
    );
}

#[test]
fn interact_005_config_001_no_interaction_state_is_stored() {
    let (output, folder) = verb(&["send", "-a", &DEMO, "ask"]).keep();
    assert_eq!(output.code, Some(0));
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(
        left,
        [".cache"],
        "only the cached card, and no interaction state"
    );
    for card in std::fs::read_dir(folder.path().join(".cache/a2a-cli/cards")).unwrap() {
        let text = std::fs::read_to_string(card.unwrap().path()).unwrap();
        assert!(
            !text.contains(output.field("Task")) && !text.contains(output.field("Context")),
            "{text}"
        );
    }
    for flag in ["--continue", "--last"] {
        assert_eq!(run_at(&DEMO, &["send", flag, "hi"]).code, Some(2));
    }
}
