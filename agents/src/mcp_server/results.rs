//! What an agent has said, as the result of a tool.

use attache::model::{Content, INPUT_REQUEST, Message, Part, Task, TaskState};
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::{Value, json};

use crate::llm::sanitize;

/// How much of one text is passed on.
const MAX_TEXT: usize = 256 << 10;

/// Why there is no result.
pub(super) fn error_result(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(sanitize(why, MAX_TEXT))])
}

/// A plain answer, without a task.
pub(super) fn message_result(agent: &str, message: &Message) -> CallToolResult {
    let mut result = CallToolResult::success(blocks(agent, &message.parts));
    result.structured_content = Some(json!({"agent": agent, "contextId": message.context_id}));
    result
}

/// A task: what has come of it, how it stands, and how it goes on.
pub(super) fn task_result(agent: &str, task: &Task) -> CallToolResult {
    let state = task.status.state;
    let words = task
        .status
        .message
        .as_ref()
        .map(|message| sanitize(&message.text(), MAX_TEXT))
        .unwrap_or_default();
    let mut content: Vec<_> = task
        .artifacts
        .iter()
        .flat_map(|artifact| blocks(agent, &artifact.parts))
        .collect();
    let id = &task.id;
    let note = match state {
        TaskState::InputRequired if is_approval_request(task) => {
            format!(
                "The agent wants an approval: {words}\nThat is for the user to give, not for you: ask the user, and answer what they say with continue_task and task_id {id}."
            )
        }
        TaskState::InputRequired => {
            format!("The agent asks: {words}\nAnswer with continue_task and task_id {id}.")
        }
        TaskState::AuthRequired => {
            format!(
                "The agent needs credentials first: {words}\nThen go on with wait_for_task or continue_task, and task_id {id}."
            )
        }
        TaskState::Completed => format!("{words}\n[task_id {id}, context_id {}]", task.context_id),
        _ if state.is_terminal() => format!("The task has ended as {}: {words}", state_name(state)),
        _ => {
            format!(
                "The agent is still working on it. {words}\nWait for it with wait_for_task and task_id {id}, or stop it with cancel_task."
            )
        }
    };
    content.push(ContentBlock::text(note.trim().to_owned()));
    let failed = state.is_terminal() && state != TaskState::Completed;
    let mut result = if failed {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.structured_content = Some(json!({
        "agent": agent, "taskId": id, "contextId": task.context_id, "state": state_name(state),
        "text": sanitize(&task.text(), MAX_TEXT), "status": words,
    }));
    result
}

/// Whether somebody has to agree to something first.
fn is_approval_request(task: &Task) -> bool {
    let asked = task
        .status
        .message
        .as_ref()
        .and_then(|message| message.metadata.as_ref()?.get(INPUT_REQUEST));
    let asked = asked.and_then(|asked| asked.read::<Value>().ok());
    asked.is_some_and(|asked| asked["wants"] == "approval")
}

/// A task that was stopped, as asked.
pub(super) fn canceled_result(agent: &str, task: &Task) -> CallToolResult {
    let mut result = self::task_result(agent, task);
    result.is_error = Some(task.status.state != TaskState::Canceled);
    result
}

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

    fn told(state: TaskState, words: &str) -> Value {
        let mut task =
            Task::submitted("t1".into(), "c1".into(), Timestamp::from_millis(0).unwrap());
        task.status = TaskStatus::new(state).with_message(Message::agent(words));
        task.artifacts
            .push(Artifact::text("answer", "forty\u{1b}[31m-two"));
        serde_json::to_value(self::task_result("deep", &task)).unwrap()
    }

    #[test]
    fn a_result_says_how_the_task_stands_and_how_it_goes_on() {
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
            let result = told(state, "ok");
            assert_eq!(result["isError"], failed);
            assert_eq!(
                result["content"][0]["text"], "forty[31m-two",
                "S55: nothing that moves a cursor"
            );
            assert_eq!(result["content"][1]["text"], note);
            assert_eq!(result["structuredContent"]["taskId"], "t1");
        }
        let mut asked =
            Task::submitted("t1".into(), "c1".into(), Timestamp::from_millis(0).unwrap());
        let mut words = Message::agent("May it?");
        words
            .metadata
            .get_or_insert_default()
            .insert(INPUT_REQUEST, json!({"wants": "approval"}));
        asked.status = TaskStatus::new(TaskState::InputRequired).with_message(words);
        let result = serde_json::to_value(self::task_result("deep", &asked)).unwrap();
        let note = result["content"][0]["text"].as_str().unwrap();
        assert!(
            note.contains("May it?") && note.contains("ask the user"),
            "{note}"
        );
    }
}
