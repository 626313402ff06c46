//! `attache chat`.

use serde_json::json;

use super::run::{DEMO, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};

#[test]
fn chat_001_messages_carry_the_context_and_the_interrupted_task() {
    let output = verb(&["chat", "-a", &DEMO])
        .stdin("ask\nAda\n\nhello\n")
        .run();
    assert_eq!(output.code, Some(0), "{output:?}");
    let tasks = output.fields("Task");
    let contexts = output.fields("Context");
    assert_eq!(
        output.fields("State"),
        [
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_COMPLETED",
            "TASK_STATE_COMPLETED"
        ]
    );
    assert_eq!(tasks[0], tasks[1]);
    assert_ne!(tasks[1], tasks[2]);
    assert!(
        contexts.iter().all(|context| *context == contexts[0]),
        "{contexts:?}"
    );
    assert!(output.out.contains("  Hello, Ada!\n"), "{}", output.out);
}

#[test]
fn chat_001_piped_chat_is_plain_text_and_json_is_refused() {
    let output = verb(&["chat", "-a", &DEMO, "-o", "json"])
        .stdin("hi\n")
        .run();
    assert_eq!(
        (output.code, &output.json()["error"]["code"]),
        (Some(2), &json!("A2ACLI_ERR_USAGE"))
    );
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let output = verb(&["chat", "-a", &peer.url, "--context-id", "c-7"])
        .stdin("hi\n")
        .run();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        peer.posted_bodies()[0]["params"]["message"]["contextId"],
        "c-7"
    );
}

#[test]
fn a_card_is_linted_beyond_the_schema() {
    let card = |url: &str| {
        scripted_agent::card(
            url,
            json!({"securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}}),
        )
    };
    let peer = ScriptedAgent::new(card, scripted_agent::answer_completed());
    let output = run_at(&peer.url, &["card", "lint", "-o", "json"]);
    assert_eq!(
        (output.code, &output.json()["errors"]),
        (Some(0), &json!([])),
        "{output:?}"
    );
    let warnings = output.json()["warnings"].to_string();
    assert!(
        warnings.contains("securityRequirements") && warnings.contains("skills[0].examples"),
        "{warnings}"
    );
    assert_eq!(run_at(&DEMO, &["card", "lint"]).code, Some(0));
}
