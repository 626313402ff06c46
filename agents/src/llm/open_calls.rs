//! Tool calls that the model requested and that have no result yet.

use attache::model::{Message, TaskId};

use super::history::{HistoryItem, LlmStep};
use crate::chat_model::ToolCall;

/// Tool call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenCall {
    pub(super) call: ToolCall,
    /// Whether the call was started, possibly before a restart.
    pub(super) is_started: bool,
    /// Task of the delegate that works on the call.
    pub(super) delegate_task: Option<TaskId>,
    /// Caller named in the delegation token of that task.
    pub(super) caller: Option<String>,
    /// Number of messages that were sent to the delegate.
    pub(super) messages_sent: usize,
}

/// Open calls of the last step, and the caller's message that no step has consumed yet.
pub(super) struct OpenCalls {
    pub(super) calls: Vec<OpenCall>,
    pub(super) answer: Option<Message>,
}

impl OpenCall {
    fn new(call: ToolCall) -> Self {
        Self {
            call,
            is_started: false,
            delegate_task: None,
            caller: None,
            messages_sent: 0,
        }
    }
}

impl OpenCalls {
    /// Derives the open calls from the history of a task.
    pub(super) fn from_history(history: &[HistoryItem]) -> Self {
        let mut calls: Vec<OpenCall> = Vec::new();
        let mut answer = None;
        for item in history {
            match item {
                HistoryItem::UserMessage(message) => answer = Some(message),
                HistoryItem::Step(step) => {
                    answer = None;
                    apply_step(&mut calls, step);
                }
            }
        }
        Self {
            calls,
            answer: answer.cloned(),
        }
    }
}

fn apply_step(open: &mut Vec<OpenCall>, step: &LlmStep) {
    match step {
        LlmStep::ToolCalls { calls, .. } => {
            *open = calls.iter().cloned().map(OpenCall::new).collect();
        }
        LlmStep::ToolStarted { id, .. } => {
            for call in open.iter_mut().filter(|open| open.call.id == *id) {
                call.is_started = true;
            }
        }
        LlmStep::Delegated {
            id, task, caller, ..
        } => {
            for call in open.iter_mut().filter(|open| open.call.id == *id) {
                call.delegate_task = Some(task.clone());
                call.caller.clone_from(caller);
                call.messages_sent += 1;
            }
        }
        LlmStep::ToolResult { id, .. } => open.retain(|open| open.call.id != *id),
        LlmStep::Reasoning { .. } | LlmStep::ToolProgress { .. } | LlmStep::Spent { .. } => {}
    }
}
