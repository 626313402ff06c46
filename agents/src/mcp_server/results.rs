//! Conversion of tasks and messages into results of MCP tools.

use attache::model::{Content, INPUT_REQUEST, Message, NO_CONTENT, Part, Task, TaskState};
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::{Value, json};

use crate::llm::sanitize;

/// Maximum size of one text.
const MAX_TEXT: usize = 256 << 10;

/// Returns an error result.
pub(super) fn error_result(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(sanitize(message, MAX_TEXT))])
}

/// Returns the result for a reply without a task.
pub(super) fn message_result(agent: &str, message: &Message) -> CallToolResult {
    let mut result = CallToolResult::success(blocks(agent, &message.parts));
    result.structured_content = Some(json!({"agent": agent, "contextId": message.context_id}));
    result
}

/// Returns the result for a task: its artifacts, and a note about its state and the next step.
pub(super) fn task_result(agent: &str, task: &Task) -> CallToolResult {
    let state = task.status.state;
    let status = status_text(task);
    let mut content = result_blocks(agent, task);
    content.push(ContentBlock::text(note(task, &status).trim().to_owned()));
    let has_failed = state.is_terminal() && state != TaskState::Completed;
    let mut result = if has_failed {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.structured_content = Some(json!({
        "agent": agent, "taskId": task.id, "contextId": task.context_id, "state": state_name(state),
        "text": sanitize(&task.text(), MAX_TEXT), "status": status,
    }));
    result
}

/// Returns the content of the task's result. The text of the status message is in the note.
fn result_blocks(agent: &str, task: &Task) -> Vec<ContentBlock> {
    let result = task.result();
    let artifacts = result.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let messages = result.messages.iter().flat_map(|message| {
        let is_status = task.status.message.as_ref() == Some(message);
        let parts = message.parts.iter();
        parts.filter(move |part| !is_status || part.as_text().is_none())
    });
    let output = result
        .output
        .iter()
        .map(|output| ContentBlock::text(sanitize(output, MAX_TEXT)));
    artifacts
        .map(|part| block(agent, part))
        .chain(output)
        .chain(messages.map(|part| block(agent, part)))
        .collect()
}

/// Returns the text of the task's status message.
fn status_text(task: &Task) -> String {
    let message = task.status.message.as_ref();
    message.map_or_else(String::new, |message| sanitize(&message.text(), MAX_TEXT))
}

/// Returns a note for the model: the state of the task, and the tool that continues it.
fn note(task: &Task, status: &str) -> String {
    let id = &task.id;
    let state = task.status.state;
    match state {
        TaskState::InputRequired if is_approval_request(task) => format!(
            "The agent wants an approval: {status}\nOnly the user may give it: ask the user, and send the answer with continue_task and task_id {id}."
        ),
        TaskState::InputRequired => {
            format!("The agent asks: {status}\nAnswer with continue_task and task_id {id}.")
        }
        TaskState::AuthRequired => format!(
            "The agent needs credentials first: {status}\nThen use wait_for_task or continue_task, and task_id {id}."
        ),
        TaskState::Completed if task.result().is_empty() => {
            let context = &task.context_id;
            format!("{NO_CONTENT}\n[task_id {id}, context_id {context}]")
        }
        TaskState::Completed => {
            let context = &task.context_id;
            format!("{status}\n[task_id {id}, context_id {context}]")
        }
        _ if state.is_terminal() => {
            format!("The task has ended as {}: {status}", state_name(state))
        }
        _ => format!(
            "The agent is still working on it. {status}\nWait for it with wait_for_task and task_id {id}, or stop it with cancel_task."
        ),
    }
}

/// Returns whether the task waits for an approval.
fn is_approval_request(task: &Task) -> bool {
    let message = task.status.message.as_ref();
    let request = message.and_then(|message| message.metadata.as_ref()?.get(INPUT_REQUEST));
    let request = request.and_then(|request| request.read::<Value>().ok());
    request.is_some_and(|request| request["wants"] == "approval")
}

/// Returns the result for a task after a cancel. It is an error unless the task is canceled.
pub(super) fn canceled_result(agent: &str, task: &Task) -> CallToolResult {
    let mut result = task_result(agent, task);
    result.is_error = Some(task.status.state != TaskState::Canceled);
    result
}

/// Returns the name of a state as in A2A 0.3, such as `input-required`.
fn state_name(state: TaskState) -> String {
    state
        .as_str()
        .trim_start_matches("TASK_STATE_")
        .to_lowercase()
        .replace('_', "-")
}

fn blocks(agent: &str, parts: &[Part]) -> Vec<ContentBlock> {
    parts.iter().map(|part| block(agent, part)).collect()
}

fn block(agent: &str, part: &Part) -> ContentBlock {
    let name = sanitize(part.filename().unwrap_or("file"), 128);
    let media_type = part
        .media_type()
        .map(|media_type| sanitize(media_type, 128));
    match &part.content {
        Content::Text(text) => ContentBlock::text(sanitize(text, MAX_TEXT)),
        Content::Data(data) => ContentBlock::text(sanitize(data.get(), MAX_TEXT)),
        Content::Url(url) => {
            let mut link = Resource::new(url.to_string(), name);
            link.mime_type = media_type;
            ContentBlock::ResourceLink(link)
        }
        Content::Raw(bytes) => match media_type {
            Some(kind) if kind.starts_with("image/") => ContentBlock::image(bytes.as_str(), kind),
            Some(kind) if kind.starts_with("audio/") => ContentBlock::audio(bytes.as_str(), kind),
            kind => {
                let uri = format!("attache://{agent}/{name}").replace(' ', "%20");
                let blob = ResourceContents::blob(bytes.as_str(), uri);
                ContentBlock::resource(match kind {
                    Some(kind) => blob.with_mime_type(kind),
                    None => blob,
                })
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::{Artifact, TaskStatus, Timestamp};

    fn result(state: TaskState, text: &str) -> Value {
        let mut task =
            Task::submitted("t1".into(), "c1".into(), Timestamp::from_millis(0).unwrap());
        task.status = TaskStatus::new(state).with_message(Message::agent(text));
        task.artifacts
            .push(Artifact::text("answer", "forty\u{1b}[31m-two"));
        serde_json::to_value(task_result("deep", &task)).unwrap()
    }

    fn completed(history: Vec<Message>) -> Value {
        let mut task =
            Task::submitted("t1".into(), "c1".into(), Timestamp::from_millis(0).unwrap());
        task.status = TaskStatus::new(TaskState::Completed);
        task.history = history.into_iter().map(Into::into).collect();
        serde_json::to_value(task_result("deep", &task)).unwrap()
    }

    #[test]
    fn seed_0_38_answers_in_the_history_are_in_the_result() {
        let answer = Message::agent("forty-two").part(Part::file(b"png", "image/png"));
        let result = completed(vec![Message::user("q"), answer]);
        assert_eq!(result["content"][0]["text"], "forty-two");
        assert_eq!(result["content"][1]["type"], "image");
        assert_eq!(result["structuredContent"]["text"], "forty-two");
    }

    #[test]
    fn a_result_without_content_is_named() {
        let result = completed(vec![Message::user("q")]);
        let note = result["content"][0]["text"].as_str().unwrap();
        assert!(note.starts_with(NO_CONTENT), "{note}");
    }

    #[test]
    fn the_note_names_the_state_and_the_next_step() {
        for (state, failed, note) in [
            (
                TaskState::Completed,
                false,
                "ok\n[task_id t1, context_id c1]",
            ),
            (
                TaskState::InputRequired,
                false,
                "The agent asks: ok\nAnswer with continue_task and task_id t1.",
            ),
            (TaskState::Failed, true, "The task has ended as failed: ok"),
            (
                TaskState::Working,
                false,
                "The agent is still working on it. ok\nWait for it with wait_for_task and task_id t1, or stop it with cancel_task.",
            ),
        ] {
            let result = result(state, "ok");
            assert_eq!(result["isError"], failed);
            assert_eq!(
                result["content"][0]["text"], "forty[31m-two",
                "S55: no control characters"
            );
            assert_eq!(result["content"][1]["text"], note);
            assert_eq!(result["structuredContent"]["taskId"], "t1");
        }
        let mut task =
            Task::submitted("t1".into(), "c1".into(), Timestamp::from_millis(0).unwrap());
        let mut question = Message::agent("May it?");
        question
            .metadata
            .get_or_insert_default()
            .insert(INPUT_REQUEST, json!({"wants": "approval"}));
        task.status = TaskStatus::new(TaskState::InputRequired).with_message(question);
        let result = serde_json::to_value(task_result("deep", &task)).unwrap();
        let note = result["content"][0]["text"].as_str().unwrap();
        assert!(
            note.contains("May it?") && note.contains("ask the user"),
            "{note}"
        );
    }
}
