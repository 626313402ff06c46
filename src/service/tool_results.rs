//! Tool results without a task id: the client refers to the task that requested the tool call in `referenceTaskIds` (seed S2
//! in `docs/protocol/09-seeds.md`).

use serde::Deserialize;

use super::Service;
use crate::model::{Call, Content, INPUT_REQUEST, Message, Part, Result, Task, TaskState};
use crate::store::Head;

/// Number of referenced tasks that are considered.
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
    /// Finds the task whose open tool request the message answers.
    ///
    /// `None` if no referenced task or more than one waits for one of the results.
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

/// Ids of the tool requests that the message has results for.
fn tool_result_ids(message: &Message) -> Vec<String> {
    let data = message.parts.iter().filter_map(|part| match &part.content {
        Content::Data(data) if is_tool_result(part) => Some(data),
        _ => None,
    });
    let results = data.filter_map(|data| serde_json::from_str::<ToolResult>(data.get()).ok());
    results.map(|result| result.tool_use_id).collect()
}

/// Whether a data part is a tool result. Unknown part kinds are read as data with the kind in the metadata (02 §5).
fn is_tool_result(part: &Part) -> bool {
    let kind = part.metadata().and_then(|metadata| metadata.get("kind"));
    kind.is_some_and(|kind| kind.get() == r#""tool-result""#)
}

/// Id of the tool request that the task waits for.
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
