//! Recorded responses of real model servers, and the exact task log that results from each.
//!
//! `<name>.http` has the responses of the model, and `<name>.json` beside it the log without volatile values.
//! `ATTACHE_GOLDEN=write` rewrites the logs; review the difference.

use std::path::{Path, PathBuf};

use attache_agents::{LlmSettings, ToolSettings};
use serde_json::{Value, json};

use crate::harness::state;
use crate::llm::{agent, model, settings};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents/dialects")
}

/// Returns the responses of a recording, with the line ends of HTTP.
fn answers(file: &Path) -> Vec<&'static str> {
    let text = std::fs::read_to_string(file).unwrap();
    let answer = |text: &str| {
        let (head, body) = text.split_once("\n\n").unwrap();
        &*Box::leak(format!("{}\r\n\r\n{body}\n", head.replace('\n', "\r\n")).into_boxed_str())
    };
    text.split("\n=====\n").map(answer).collect()
}

/// Returns a task without ids and timestamps.
fn log(task: &Value) -> Value {
    let message_log = |message: &Value| json!({"role": message["role"], "parts": message["parts"], "step": message["metadata"]["attache.step"]});
    let history: Vec<_> = task["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(message_log)
        .collect();
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let artifacts: Vec<_> = artifacts
        .map(|one| json!({"name": one["name"], "parts": one["parts"]}))
        .collect();
    let mut usage = task["metadata"]["attache.usage"].clone();
    usage.as_object_mut().unwrap().remove("milliseconds");
    json!({
        "history": history, "artifacts": artifacts, "usage": usage,
        "state": state(task), "words": task["status"]["message"]["parts"],
    })
}

#[tokio::test]
async fn every_dialect_produces_the_golden_log() {
    let files = std::fs::read_dir(folder())
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|end| end == "http"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 6);
    for file in files {
        let model = model(&answers(&file)).await;
        let clock = ToolSettings {
            description: "The time".to_owned(),
            command: vec!["echo".to_owned(), "noon".to_owned()],
            ..ToolSettings::default()
        };
        let settings = LlmSettings {
            tools: [("clock".to_owned(), clock)].into(),
            ..settings(&model)
        };
        let task = agent(settings).await.send_text("What time is it?").await;
        // Concurrent calls end in any order.
        let golden = file.with_extension("json");
        let mut log = log(&task);
        let order = |one: &Value| {
            (one["step"]["type"] == "tool-result").then(|| one["step"]["id"].to_string())
        };
        log["history"].as_array_mut().unwrap().sort_by_key(order);
        if std::env::var_os("ATTACHE_GOLDEN").is_some_and(|value| value == "write") {
            std::fs::write(&golden, format!("{log:#}\n")).unwrap();
        }
        let expected: Value =
            serde_json::from_str(&std::fs::read_to_string(&golden).unwrap()).unwrap();
        assert_eq!(log, expected, "{}", file.display());
    }
}
