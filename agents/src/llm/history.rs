//! What has happened in a task so far, step by step: read from its log and written into it.

use attache::Turn;
use attache::model::{Message, Object, Part, Role, Task, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chat_model::{TokenUsage, ToolCall};
use crate::lineage::Cost;

/// Under this key the metadata of a message of ours has the step that it tells of. Nobody else can say it: what begins
/// so is dropped from whatever comes in.
const STEP_KEY: &str = "attache.step";

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum LlmStep {
    /// The model has thought aloud.
    Reasoning { text: String },
    /// The model wants tools to be called, and said this before.
    ToolCalls {
        text: String,
        calls: Vec<ToolCall>,
        usage: TokenUsage,
    },
    /// A tool is about to be called.
    ToolStarted { id: String, name: String },
    /// A tool says how its call goes.
    ToolProgress {
        id: String,
        name: String,
        progress: f64,
        total: Option<f64>,
        text: String,
    },
    /// Another agent works on a call, as this task of its own; for whom, if that was signed.
    Delegated {
        id: String,
        task: TaskId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<String>,
    },
    /// What the work of another agent on a call has cost.
    Spent { id: String, cost: Cost },
    /// What became of a call.
    ToolResult {
        id: String,
        name: String,
        result: String,
        failed: bool,
    },
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(super) enum HistoryItem {
    /// The caller said something.
    UserMessage(Message),
    /// We did something.
    Step(LlmStep),
}

impl LlmStep {
    /// Tells the caller, and so the log.
    pub(super) async fn publish(&self, turn: &Turn) {
        let mut message = Message {
            role: Role::Agent,
            parts: vec![self.data_part()],
            ..Message::default()
        };
        let mut metadata = Object::new();
        metadata.insert(STEP_KEY, serde_json::to_value(self).unwrap_or_default());
        message.metadata = Some(metadata);
        turn.say_message(message).await;
    }

    /// The step for programs that show how the work goes.
    fn data_part(&self) -> Part {
        Part::data(match self {
            Self::Reasoning { text } => json!({"type": "reasoning", "text": text}),
            Self::ToolCalls { text, calls, .. } => {
                let calls: Vec<_> = calls
                    .iter()
                    .map(|call| json!({"id": call.id, "name": call.name}))
                    .collect();
                json!({"type": "tool-calls", "text": text, "calls": calls})
            }
            Self::ToolStarted { id, name } => {
                json!({"type": "tool-started", "id": id, "name": name})
            }
            Self::ToolProgress {
                id,
                name,
                progress,
                total,
                text,
            } => {
                json!({"type": "tool-progress", "id": id, "name": name, "progress": progress, "total": total, "text": text})
            }
            Self::Delegated { id, task, .. } => {
                json!({"type": "delegated", "id": id, "taskId": task})
            }
            Self::Spent { id, cost } => json!({"type": "spent", "id": id, "usage": cost}),
            Self::ToolResult {
                id, name, failed, ..
            } => {
                json!({"type": "tool-result", "id": id, "name": name, "failed": failed})
            }
        })
    }
}

/// All that has happened in a task.
pub(super) fn read_history(task: &Task) -> Vec<HistoryItem> {
    let said = task.history.iter().chain(&task.status.message);
    said.filter_map(|message| match message.role {
        Role::User => Some(HistoryItem::UserMessage((**message).clone())),
        // A message that only says it is from an agent has no step.
        _ => message
            .metadata
            .as_ref()?
            .get(STEP_KEY)?
            .read()
            .ok()
            .map(HistoryItem::Step),
    })
    .collect()
}
