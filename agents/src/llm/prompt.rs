//! Prompt of the model: system prompt, earlier tasks of the conversation, and the history of the task.

use attache::model::{Content, Message, Role, Task};
use serde_json::{Value, json};

use super::history::{HistoryItem, LlmStep};
use super::untrusted_text::{self, fence};

/// Builds the chat messages for the model.
///
/// `memory` bounds the size of the earlier tasks in bytes.
pub(super) fn build_messages(
    system: &str,
    earlier_tasks: &[Task],
    memory: usize,
    history: &[HistoryItem],
) -> Vec<Value> {
    let system = if system.is_empty() {
        untrusted_text::UNTRUSTED_DATA_RULE.to_owned()
    } else {
        format!("{system}\n\n{}", untrusted_text::UNTRUSTED_DATA_RULE)
    };
    let mut messages = vec![json!({"role": "system", "content": system})];
    messages.extend(memory_messages(earlier_tasks, memory));
    let mut open = 0_usize;
    for item in history {
        match item {
            // A message that arrived while calls were open is the answer to one of them, and part of its result.
            HistoryItem::UserMessage(_) if open > 0 => {}
            HistoryItem::UserMessage(message) => {
                messages.push(json!({"role": "user", "content": message_text(message)}))
            }
            HistoryItem::Step(LlmStep::ToolCalls { text, calls, .. }) => {
                open = calls.len();
                let calls = calls.iter().map(|call| {
                    let function = json!({"name": call.name, "arguments": call.arguments});
                    json!({"id": call.id, "type": "function", "function": function})
                });
                let calls: Vec<_> = calls.collect();
                let content = (!text.is_empty()).then_some(text);
                messages
                    .push(json!({"role": "assistant", "content": content, "tool_calls": calls}));
            }
            HistoryItem::Step(LlmStep::ToolResult { id, result, .. }) => {
                open = open.saturating_sub(1);
                messages
                    .push(json!({"role": "tool", "tool_call_id": id, "content": fence(result)}));
            }
            HistoryItem::Step(
                LlmStep::Reasoning { .. }
                | LlmStep::ToolStarted { .. }
                | LlmStep::ToolProgress { .. }
                | LlmStep::Delegated { .. }
                | LlmStep::Spent { .. },
            ) => {}
        }
    }
    messages
}

/// Returns request and answer of the newest earlier tasks that fit into `remaining` bytes, oldest first.
fn memory_messages(earlier_tasks: &[Task], mut remaining: usize) -> Vec<Value> {
    let mut messages = Vec::new();
    for task in earlier_tasks.iter().rev() {
        let first = task
            .history
            .iter()
            .find(|message| message.role == Role::User);
        let Some(request) = first.map(|first| message_text(first)) else {
            continue;
        };
        let answer = task.text();
        let Some(left) = remaining.checked_sub(request.len() + answer.len()) else {
            break;
        };
        remaining = left;
        if !answer.is_empty() {
            messages.push(json!({"role": "assistant", "content": answer}));
            messages.push(json!({"role": "user", "content": request}));
        }
    }
    messages.reverse();
    messages
}

/// Returns a message as text: text parts unchanged, data parts as JSON, and one line for each file.
pub(super) fn message_text(message: &Message) -> String {
    let lines = message.parts.iter().map(|part| {
        let name = part.filename().unwrap_or("unnamed");
        match &part.content {
            Content::Text(text) => text.clone(),
            Content::Data(data) => data.get().to_owned(),
            Content::Raw(_) | Content::Url(_) => {
                format!(
                    "[file {name}, {}]",
                    part.media_type().unwrap_or("unknown type")
                )
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}
