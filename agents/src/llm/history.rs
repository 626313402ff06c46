//! Steps of a task: published as status updates, and read back from the task's history after a restart.

use attache::Turn;
use attache::model::{Message, Object, Part, Role, Task, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chat_model::{TokenUsage, ToolCall};
use crate::cost::Cost;

/// Metadata key of a status message that holds its step. Callers cannot set keys that begin with `attache.`: the server
/// drops them from received messages.
const STEP_KEY: &str = "attache.step";

/// Step of a task, as recorded in its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum LlmStep {
    /// Reasoning of the model.
    Reasoning { text: String },
    /// Tool calls requested by the model, and its text before them.
    ToolCalls {
        text: String,
        calls: Vec<ToolCall>,
        usage: TokenUsage,
    },
    /// Start of a tool call, recorded before the call is made.
    ToolStarted { id: String, name: String },
    /// Progress reported by a tool.
    ToolProgress {
        id: String,
        name: String,
        progress: f64,
        total: Option<f64>,
        text: String,
    },
    /// Task of a delegate that works on a call, and the caller named in its delegation token.
    Delegated {
        id: String,
        /// Name of the delegate. Empty in logs of earlier versions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        agent: String,
        task: TaskId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<String>,
    },
    /// Cost of a delegate's task.
    Spent { id: String, cost: Cost },
    /// Result of a call.
    ToolResult {
        id: String,
        name: String,
        result: String,
        failed: bool,
    },
}

/// Item of a task's history.
#[derive(Debug, Clone)]
pub(super) enum HistoryItem {
    /// Message of the caller.
    UserMessage(Message),
    /// Step of this agent.
    Step(LlmStep),
}

impl LlmStep {
    /// Publishes the step as a status update, which also stores it in the log.
    pub(super) async fn publish(&self, turn: &Turn) {
        let mut message = Message {
            role: Role::Agent,
            parts: vec![self.data_part()],
            ..Message::default()
        };
        if let Self::Delegated { agent, task, .. } = self {
            // Clients that read only texts see the progress, and find the task of the delegate.
            message.parts.push(Part::text(delegation_text(agent)));
            message.reference_task_ids.push(task.clone());
        }
        let mut metadata = Object::new();
        metadata.insert(STEP_KEY, serde_json::to_value(self).unwrap_or_default());
        message.metadata = Some(metadata);
        turn.say_message(message).await;
    }

    /// Returns the data part for clients. It omits arguments and results of tools.
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

fn delegation_text(agent: &str) -> String {
    match agent {
        "" => "delegated to another agent".to_owned(),
        agent => format!("delegated to {agent}"),
    }
}

/// Reads the history of a task.
pub(super) fn read_history(task: &Task) -> Vec<HistoryItem> {
    let messages = task.history.iter().chain(&task.status.message);
    messages
        .filter_map(|message| match message.role {
            Role::User => Some(HistoryItem::UserMessage((**message).clone())),
            // Messages without a step are skipped.
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
