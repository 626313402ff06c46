//! What the model is told: its rules, what it remembers, and what has happened in the task.

use attache::model::{Content, Message, Role, Task};
use serde_json::{Value, json};

use super::history::{HistoryItem, LlmStep};
use super::untrusted_text::{self, fence};

/// The messages for the model.
pub(super) fn build_messages(
    system: &str,
    earlier_tasks: &[Task],
    memory: usize,
    history: &[HistoryItem],
) -> Vec<Value> {
    let rules = if system.is_empty() {
        untrusted_text::UNTRUSTED_DATA_RULE.to_owned()
    } else {
        format!("{system}\n\n{}", untrusted_text::UNTRUSTED_DATA_RULE)
    };
    let mut messages = vec![json!({"role": "system", "content": rules})];
    messages.extend(memory_messages(earlier_tasks, memory));
    let mut open = 0_usize;
    for one in history {
        match one {
            // What was heard while calls were open is the answer to one, and in its result.
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
                let (content, calls) = (
                    (!text.is_empty()).then_some(text),
                    calls.collect::<Vec<_>>(),
                );
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

/// The newest of what was said before, as much as there is room for.
fn memory_messages(earlier_tasks: &[Task], mut room: usize) -> Vec<Value> {
    let mut messages = Vec::new();
    for task in earlier_tasks.iter().rev() {
        let asked = task
            .history
            .iter()
            .find(|message| message.role == Role::User);
        let (Some(asked), answer) = (asked.map(|asked| message_text(asked)), task.text()) else {
            continue;
        };
        let Some(left) = room.checked_sub(asked.len() + answer.len()) else {
            break;
        };
        room = left;
        if !answer.is_empty() {
            messages.push(json!({"role": "assistant", "content": answer}));
            messages.push(json!({"role": "user", "content": asked}));
        }
    }
    messages.reverse();
    messages
}

/// A message as a prompt: texts as they are, data as a line of JSON, and a line that a file is there.
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
