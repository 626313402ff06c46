//! Tasks in JSON: accessors, and the invariants that hold across crashes.

use std::collections::HashSet;

use serde_json::Value;

pub(super) const COMPLETED: &str = "TASK_STATE_COMPLETED";
pub(super) const FAILED: &str = "TASK_STATE_FAILED";
pub(super) const CANCELED: &str = "TASK_STATE_CANCELED";
pub(super) const INPUT_REQUIRED: &str = "TASK_STATE_INPUT_REQUIRED";

/// Returns the text of the artifact that a completed message has written.
pub(super) fn expected_result(text: &str) -> String {
    let mut words = text.split(' ');
    match words.next() {
        Some("stream") => (0..words.next().unwrap().parse::<u32>().unwrap())
            .map(|number| format!("{number} "))
            .collect(),
        _ => text.to_owned(),
    }
}

pub(super) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

pub(super) fn is_terminal(task: &Value) -> bool {
    [COMPLETED, FAILED, CANCELED].contains(&state(task))
}

pub(super) fn is_settled(task: &Value) -> bool {
    is_terminal(task) || state(task) == INPUT_REQUIRED
}

/// Returns all messages in order.
pub(super) fn messages(task: &Value) -> Vec<&Value> {
    let history = task["history"].as_array().into_iter().flatten();
    history.chain(task["status"].get("message")).collect()
}

pub(super) fn message_ids(task: &Value) -> Vec<&Value> {
    messages(task)
        .into_iter()
        .map(|message| &message["messageId"])
        .collect()
}

/// Returns the artifacts with their ids and texts.
pub(super) fn artifact_texts(task: &Value) -> Vec<(&Value, String)> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let text = |artifact: &Value| {
        let parts = artifact["parts"].as_array().into_iter().flatten();
        parts.map(|part| part["text"].as_str().unwrap()).collect()
    };
    artifacts
        .map(|artifact| (&artifact["artifactId"], text(artifact)))
        .collect()
}

/// Asserts that a later read extends an earlier one.
pub(super) fn assert_follows(before: &Value, after: &Value) {
    if is_terminal(before) {
        return assert_eq!(before, after);
    }
    assert_eq!(
        (&before["id"], &before["contextId"]),
        (&after["id"], &after["contextId"])
    );
    assert!(
        messages(after).starts_with(&messages(before)),
        "{before} {after}"
    );
    let old = artifact_texts(before);
    let new = artifact_texts(after);
    assert!(old.len() <= new.len(), "{before} {after}");
    for ((old_id, old), (new_id, new)) in old.iter().zip(&new) {
        assert!(old_id == new_id && new.starts_with(old), "{before} {after}");
    }
}

/// Asserts that a task is consistent: no duplicate message, no missing artifact, a reason for a failure.
pub(super) fn assert_consistent(task: &Value) {
    let ids = message_ids(task);
    assert_eq!(
        ids.iter().collect::<HashSet<_>>().len(),
        ids.len(),
        "{task}"
    );
    if state(task) == FAILED {
        assert_eq!(task["metadata"]["attache.reason"], "interrupted", "{task}");
    }
    let texts = messages(task)
        .into_iter()
        .filter(|message| message["role"] == "ROLE_USER");
    let texts = texts.map(|message| message["parts"][0]["text"].as_str().unwrap());
    // `ask` and `wait` write no artifact.
    let results: Vec<_> = texts
        .filter(|text| !text.starts_with("ask") && !text.starts_with("wait"))
        .map(expected_result)
        .collect();
    let artifacts = artifact_texts(task);
    match state(task) {
        COMPLETED => {
            let texts: Vec<_> = artifacts.iter().map(|(_, text)| text.clone()).collect();
            assert_eq!(texts, results, "{task}");
        }
        _ => {
            assert!(artifacts.len() <= results.len(), "{task}");
            let mut pairs = artifacts.iter().zip(&results);
            assert!(
                pairs.all(|((_, text), result)| result.starts_with(text)),
                "{task}"
            );
        }
    }
}
