//! Answers that name no task: a client that was asked to use a tool sends the result and refers to the task that asked
//! (seed S2).

use serde::Deserialize;

use super::Service;
use crate::model::{Call, Content, INPUT_REQUEST, Message, Part, Result, Task, TaskState};
use crate::store::Head;

/// How many of the tasks that a message refers to are looked at.
const MAX_REFERENCES: usize = 16;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    tool_use_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequest {
    request_id: String,
}

impl Service {
    /// The one task that the message answers: it refers to it, and has the result that the task waits for.
    pub(super) async fn task_awaiting_result(
        &self,
        call: &Call,
        message: &Message,
    ) -> Result<Option<Head>> {
        let results = tool_result_ids(message);
        if results.is_empty() {
            return Ok(None);
        }
        let mut found = None;
        for id in message.reference_task_ids.iter().take(MAX_REFERENCES) {
            let Some(head) = self.engine.find(&call.scope, id).await? else {
                continue;
            };
            if head.state != TaskState::InputRequired {
                continue;
            }
            let (task, _) = self.engine.task(&head).await?;
            if open_request(&task).is_some_and(|open| results.contains(&open)) {
                if found.is_some() {
                    return Ok(None);
                }
                found = Some(head);
            }
        }
        Ok(found)
    }
}

/// The requests that a message has results for.
fn tool_result_ids(message: &Message) -> Vec<String> {
    let data = message.parts.iter().filter_map(|part| match &part.content {
        Content::Data(data) if is_tool_result(part) => Some(data),
        _ => None,
    });
    let results = data.filter_map(|data| serde_json::from_str::<ToolResult>(data.get()).ok());
    results.map(|result| result.tool_use_id).collect()
}

/// 02 §5: a part of a kind of its own is data, and keeps its kind in its metadata.
fn is_tool_result(part: &Part) -> bool {
    let kind = part.metadata().and_then(|metadata| metadata.get("kind"));
    kind.is_some_and(|kind| kind.get() == r#""tool-result""#)
}

/// The request that a task waits for the result of.
fn open_request(task: &Task) -> Option<String> {
    let request = task
        .status
        .message
        .as_ref()?
        .metadata
        .as_ref()?
        .get(INPUT_REQUEST)?;
    serde_json::from_str::<InputRequest>(request.get())
        .ok()
        .map(|request| request.request_id)
}
