//! Tasks as a client sees them: which of them are right.

use std::collections::HashSet;

use serde_json::Value;

pub(super) const COMPLETED: &str = "TASK_STATE_COMPLETED";
pub(super) const FAILED: &str = "TASK_STATE_FAILED";
pub(super) const CANCELED: &str = "TASK_STATE_CANCELED";
pub(super) const ASKS: &str = "TASK_STATE_INPUT_REQUIRED";

/// What a task that was opened with this text has written when it is done.
pub(super) fn result_of(text: &str) -> String {
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
    is_terminal(task) || state(task) == ASKS
}

/// Everything that was said, in order.
pub(super) fn said(task: &Value) -> Vec<&Value> {
    let history = task["history"].as_array().into_iter().flatten();
    history.chain(task["status"].get("message")).collect()
}

pub(super) fn ids_said(task: &Value) -> Vec<&Value> {
    said(task)
        .into_iter()
        .map(|message| &message["messageId"])
        .collect()
}

/// The artifacts, each with its id and its text.
pub(super) fn written(task: &Value) -> Vec<(&Value, String)> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let text = |artifact: &Value| {
        let parts = artifact["parts"].as_array().into_iter().flatten();
        parts.map(|part| part["text"].as_str().unwrap()).collect()
    };
    artifacts
        .map(|artifact| (&artifact["artifactId"], text(artifact)))
        .collect()
}

/// A later reading has everything of an earlier one, in its place.
pub(super) fn assert_follows(before: &Value, after: &Value) {
    if is_terminal(before) {
        return assert_eq!(before, after);
    }
    assert_eq!(
        (&before["id"], &before["contextId"]),
        (&after["id"], &after["contextId"])
    );
    assert!(said(after).starts_with(&said(before)), "{before} {after}");
    let (old, new) = (written(before), written(after));
    assert!(old.len() <= new.len(), "{before} {after}");
    for ((old_id, old), (new_id, new)) in old.iter().zip(&new) {
        assert!(old_id == new_id && new.starts_with(old), "{before} {after}");
    }
}

/// A task is right in itself: nothing twice, nothing left out, and a failure says why.
pub(super) fn assert_whole(task: &Value) {
    let ids = ids_said(task);
    assert_eq!(
        ids.iter().collect::<HashSet<_>>().len(),
        ids.len(),
        "{task}"
    );
    if state(task) == FAILED {
        assert_eq!(task["metadata"]["attache.reason"], "interrupted", "{task}");
    }
    let texts = said(task)
        .into_iter()
        .filter(|message| message["role"] == "ROLE_USER");
    let texts = texts.map(|message| message["parts"][0]["text"].as_str().unwrap());
    // A question is answered by an echo; a task that waits writes nothing.
    let results: Vec<_> = texts
        .filter(|text| !text.starts_with("ask") && !text.starts_with("wait"))
        .map(result_of)
        .collect();
    let written = written(task);
    match state(task) {
        COMPLETED => {
            let written: Vec<_> = written.iter().map(|(_, text)| text.clone()).collect();
            assert_eq!(written, results, "{task}");
        }
        _ => {
            assert!(written.len() <= results.len(), "{task}");
            let mut pairs = written.iter().zip(&results);
            assert!(
                pairs.all(|((_, written), result)| result.starts_with(written)),
                "{task}"
            );
        }
    }
}
