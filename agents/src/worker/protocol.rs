//! Lines between the server and a worker: one JSON object each. `docs/worker.md` specifies them.

use attache::Turn;
use attache::model::{AgentSkill, Json, Object, TaskState};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::backend_context::{backend_context_id, backend_message, backend_task};
use crate::turn_output::{json_error, remembered};

/// Version of the protocol.
pub(super) const PROTOCOL: u64 = 1;

/// Line of a worker.
#[derive(Debug)]
pub(super) enum WorkerLine {
    /// First line.
    Hello(Hello),
    /// Answer to a ping.
    Pong,
    /// Output of a turn.
    Output { turn: u64, output: Object },
}

/// First line of a worker.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Hello {
    /// Version of the protocol that the worker speaks.
    pub(super) protocol: u64,
    /// Reason why the worker cannot serve, for the operator.
    pub(super) error: Option<String>,
    #[serde(flatten)]
    pub(super) card: WorkerCard,
}

/// Fields of the agent card that the worker knows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkerCard {
    /// Name for people.
    pub name: Option<String>,
    /// Description for people and models.
    pub description: Option<String>,
    /// Skills of the agent.
    pub skills: Vec<AgentSkill>,
}

/// Parses a line.
///
/// # Errors
/// The line is not part of the protocol. The reason does not quote it.
pub(super) fn parse(line: &[u8]) -> Result<WorkerLine, &'static str> {
    let mut line: Object = serde_json::from_slice(line).map_err(|error| json_error(&error))?;
    if let Some(hello) = line.get("hello") {
        let hello = hello.read().map_err(|error| json_error(&error))?;
        return Ok(WorkerLine::Hello(hello));
    }
    if line.get("pong").is_some() {
        return Ok(WorkerLine::Pong);
    }
    let turn = line.remove("turn").ok_or("it has no turn")?;
    let turn = turn.read().map_err(|_| "its turn is not a number")?;
    Ok(WorkerLine::Output { turn, output: line })
}

/// Whether an output ends its turn.
pub(super) fn ends_turn(output: &Object) -> bool {
    if output.get("question").is_some() || output.get("reply").is_some() {
        return true;
    }
    let state = output.get("state");
    let state = state.and_then(|state| state.read::<TaskState>().ok());
    state.is_some_and(|state| state != TaskState::Working)
}

/// First line of the server.
pub(super) fn hello(max_line: usize, max_turns: usize) -> Vec<u8> {
    encode(&json!({"hello": {"protocol": PROTOCOL, "maxLine": max_line, "maxTurns": max_turns}}))
}

pub(super) fn ping() -> Vec<u8> {
    encode(&json!({"ping": true}))
}

pub(super) fn cancel(turn: u64) -> Vec<u8> {
    encode(&json!({"cancel": turn}))
}

/// Line that starts a turn. `None` if the message alone is longer than `max_line` bytes.
///
/// Leaves out the artifacts of a task that is too long, then its history. `omitted` names them.
pub(super) fn start(id: u64, turn: &Turn, max_line: usize) -> Option<Vec<u8>> {
    let mut task = serde_json::to_value(backend_task(turn)).ok()?;
    let mut omitted: Vec<&str> = Vec::new();
    for part in [None, Some("artifacts"), Some("history")] {
        if let (Some(part), Some(task)) = (part, task.as_object_mut()) {
            task.remove(part);
            omitted.push(part);
        }
        let line = encode(&start_object(id, turn, &task, &omitted));
        if line.len() <= max_line {
            return Some(line);
        }
    }
    None
}

fn start_object(id: u64, turn: &Turn, task: &Value, omitted: &[&str]) -> Value {
    let mut line = json!({
        "turn": id,
        "text": turn.text(),
        "message": backend_message(turn),
        "task": task,
        "contextId": backend_context_id(turn),
        "caller": turn.caller().name(),
        "tenant": turn.call().scope.tenant,
        "attempt": turn.attempt(),
    });
    let memory = remembered(turn);
    let memory = memory.and_then(|memory: Json| memory.read::<Value>().ok());
    if let Some(memory) = memory {
        line["memory"] = memory;
    }
    if let Some(trace) = turn.trace() {
        line["traceparent"] = trace.parent().into();
    }
    if !omitted.is_empty() {
        line["omitted"] = json!(omitted);
    }
    line
}

fn encode(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> Object {
        match parse(text.as_bytes()).unwrap() {
            WorkerLine::Output { output, .. } => output,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_a_reply_and_a_final_state_end_a_turn() {
        for (line, ends) in [
            (r#"{"turn": 1, "text": "a"}"#, false),
            (r#"{"turn": 1, "message": "at work"}"#, false),
            (
                r#"{"turn": 1, "state": "working", "message": "at work"}"#,
                false,
            ),
            (r#"{"turn": 1, "question": "which?"}"#, true),
            (r#"{"turn": 1, "reply": "that"}"#, true),
            (r#"{"turn": 1, "state": "completed"}"#, true),
            (r#"{"turn": 1, "state": "failed", "message": "no"}"#, true),
        ] {
            assert_eq!(ends_turn(&output(line)), ends, "{line}");
        }
    }

    #[test]
    fn lines_outside_of_the_protocol_are_refused_without_quoting_them() {
        for (line, reason) in [
            ("Traceback (most recent call last):", "it is not JSON"),
            ("[1]", "it has an unknown member, or one of the wrong type"),
            (r#"{"text": "secret"}"#, "it has no turn"),
            (r#"{"turn": "secret"}"#, "its turn is not a number"),
            (r#"{"turn": 1, "text": "cut"#, "it ends too early"),
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap_err(), reason, "{line}");
        }
    }
}
