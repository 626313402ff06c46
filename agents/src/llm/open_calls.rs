//! The calls that a model has asked for and that have no result yet.

use std::collections::HashMap;

use attache::Turn;
use attache::model::{Content, Message, TaskId};
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::caller_question::{CallerQuestion, answers_call, check_approval, read_result};
use super::delegate::{DelegateOutcome, DelegateRequest};
use super::history::{HistoryItem, LlmStep};
use super::spans;
use super::tool::{Tool, ToolKind, ToolOutput};
use super::toolset::Toolset;
use crate::chat_model::ToolCall;
use crate::lineage::{Budget, Cost, DelegationLimits};

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenCall {
    pub(super) call: ToolCall,
    pub(super) is_started: bool,
    pub(super) delegate_task: Option<TaskId>,
    /// For whom it was signed that the task is.
    pub(super) caller: Option<String>,
    /// How often something was sent to whoever works on it.
    pub(super) messages_sent: usize,
}

/// What is to be done about an open call.
enum CallAction {
    Run,
    Delegate(DelegateRequest),
    AskCaller(CallerQuestion),
    Result(ToolOutput),
}

/// The calls of the last step that have no result yet, and what the caller has said that no step has taken up.
pub(super) fn open_calls(history: &[HistoryItem]) -> (Vec<OpenCall>, Option<&Message>) {
    let mut open: Vec<OpenCall> = Vec::new();
    let mut answer = None;
    for one in history {
        match one {
            HistoryItem::UserMessage(message) => answer = Some(message),
            HistoryItem::Step(step) => {
                answer = None;
                match step {
                    LlmStep::ToolCalls { calls, .. } => {
                        let calls = calls.iter().cloned();
                        open = calls
                            .map(|call| OpenCall {
                                call,
                                is_started: false,
                                delegate_task: None,
                                caller: None,
                                messages_sent: 0,
                            })
                            .collect();
                    }
                    LlmStep::ToolStarted { id, .. } => {
                        open.iter_mut()
                            .filter(|open| open.call.id == *id)
                            .for_each(|open| open.is_started = true);
                    }
                    LlmStep::Delegated { id, task, caller } => {
                        for known in open.iter_mut().filter(|open| open.call.id == *id) {
                            (known.delegate_task, known.caller) =
                                (Some(task.clone()), caller.clone());
                            known.messages_sent += 1;
                        }
                    }
                    LlmStep::ToolResult { id, .. } => open.retain(|open| open.call.id != *id),
                    LlmStep::Reasoning { .. }
                    | LlmStep::ToolProgress { .. }
                    | LlmStep::Spent { .. } => {}
                }
            }
        }
    }
    (open, answer)
}

/// Works on open calls, at the same time where they do not need the caller.
pub(super) struct CallRunner<'a> {
    pub(super) turn: &'a Turn,
    pub(super) toolset: &'a Toolset,
    pub(super) limits: DelegationLimits,
}

impl CallRunner<'_> {
    /// Gives results to all of them, or what the caller must be asked first.
    pub(super) async fn run_open_calls(
        &self,
        open: Vec<OpenCall>,
        mut answer: Option<&Message>,
        history: &mut Vec<HistoryItem>,
    ) -> Option<CallerQuestion> {
        let mut asks = Vec::new();
        let mut running = JoinSet::new();
        let mut ids = HashMap::new();
        for (at, open) in open.into_iter().enumerate() {
            let Some(tool) = self.toolset.tool(&open.call.name).cloned() else {
                let names: Vec<_> = self
                    .toolset
                    .0
                    .iter()
                    .map(|tool| tool.name.as_str())
                    .collect();
                let why = format!(
                    "there is no tool of that name; there are: {}",
                    names.join(", ")
                );
                self.record_result(&open.call, Err(why), history).await;
                continue;
            };
            let arguments = match arguments(&open.call) {
                Ok(arguments) => arguments,
                Err(why) => {
                    self.record_result(&open.call, Err(why), history).await;
                    continue;
                }
            };
            match self.next_action(&tool, &open, &arguments, &mut answer) {
                CallAction::Result(output) => {
                    let output = tool.sanitized(output);
                    self.record_result(&open.call, output, history).await;
                }
                CallAction::AskCaller(ask) => asks.push((at, ask)),
                CallAction::Run => {
                    self.record_start(&open.call, history).await;
                    let (turn, call) = (self.turn.clone(), open.call);
                    let named = call.clone();
                    let span = spans::tool_span(&call);
                    let called = async move {
                        let output = tool.call(&turn, &call, &arguments).await;
                        spans::record_output(&Span::current(), &output);
                        (at, call, Ok(output), Cost::default())
                    };
                    let handle = running.spawn(called.instrument(span));
                    ids.insert(handle.id(), named);
                }
                CallAction::Delegate(request) => {
                    if matches!(request, DelegateRequest::Start(_)) {
                        self.record_start(&open.call, history).await;
                    }
                    // Whoever works on it has asked so often, if it asks again.
                    let asked = open.messages_sent
                        + usize::from(!matches!(request, DelegateRequest::Follow(_)));
                    let (turn, call, limits) = (self.turn.clone(), open.call, self.limits.clone());
                    let named = call.clone();
                    let span = spans::tool_span(&call);
                    let gone = async move {
                        let (outcome, cost) =
                            run_delegate(&tool, &turn, &call, (request, asked), limits).await;
                        if let Ok(output) = &outcome {
                            spans::record_output(&Span::current(), output);
                        }
                        (at, call, outcome, cost)
                    };
                    let handle = running.spawn(gone.instrument(span));
                    ids.insert(handle.id(), named);
                }
            }
        }
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok((_, call, Ok(output), cost)) => {
                    self.record_cost(&call, cost, history).await;
                    self.record_result(&call, output, history).await;
                }
                // What it costs in all is known when it ends.
                Ok((at, _, Err(ask), _)) => asks.push((at, ask)),
                Err(error) => {
                    tracing::error!(%error, task = %self.turn.task_id(), "a tool panicked");
                    if let Some(call) = ids.remove(&error.id()) {
                        self.record_result(&call, Err("the tool failed".to_owned()), history)
                            .await;
                    }
                }
            }
        }
        asks.sort_by_key(|(at, _)| *at);
        asks.into_iter().next().map(|(_, ask)| ask)
    }

    fn next_action(
        &self,
        tool: &Tool,
        open: &OpenCall,
        arguments: &Map<String, Value>,
        answer: &mut Option<&Message>,
    ) -> CallAction {
        let call = &open.call;
        let caller = self.turn.caller().name();
        if !tool.settings.callers.is_empty()
            && !tool.settings.callers.iter().any(|name| name == caller)
        {
            // Our rights are not those of everybody who asks us.
            return CallAction::Result(Err(
                "refused: this tool may not be called for whoever asks".to_owned(),
            ));
        }
        if let (Some(task), ToolKind::Agent(_)) = (&open.delegate_task, &tool.kind) {
            return CallAction::Delegate(match answer.take() {
                Some(_) if self.turn.is_unanswered() => {
                    return CallAction::Result(Err("nobody answered in time".to_owned()));
                }
                Some(answer) => DelegateRequest::Answer(task.clone(), Box::new(answer.clone())),
                None => DelegateRequest::Follow(task.clone()),
            });
        }
        if open.is_started && !tool.settings.repeat {
            let why = "the call was cut off by a restart; whether it had an effect is not known";
            return CallAction::Result(Err(why.to_owned()));
        }
        let must_ask = tool.settings.approval && !open.is_started;
        if must_ask || matches!(tool.kind, ToolKind::Client) {
            let ask = || {
                if must_ask {
                    CallerQuestion::approval(call, tool.has_changed())
                } else {
                    CallerQuestion::tool_use(call)
                }
            };
            let Some(answer) = answer.take_if(|answer| answers_call(answer, &call.id)) else {
                return CallAction::AskCaller(ask());
            };
            if self.turn.is_unanswered() {
                return CallAction::Result(Err("nobody answered in time".to_owned()));
            }
            if !must_ask {
                return CallAction::Result(read_result(answer, &call.id));
            }
            if let Err(said) = check_approval(answer, &call.id) {
                return CallAction::Result(Err(format!(
                    "the user did not agree to this call: {said}"
                )));
            }
        }
        match &tool.kind {
            ToolKind::Agent(_) => {
                CallAction::Delegate(DelegateRequest::Start(delegate_prompt(arguments)))
            }
            _ => CallAction::Run,
        }
    }

    async fn record_start(&self, call: &ToolCall, history: &mut Vec<HistoryItem>) {
        let step = LlmStep::ToolStarted {
            id: call.id.clone(),
            name: call.name.clone(),
        };
        step.publish(self.turn).await;
        history.push(HistoryItem::Step(step));
    }

    async fn record_cost(&self, call: &ToolCall, cost: Cost, history: &mut Vec<HistoryItem>) {
        if cost != Cost::default() {
            let step = LlmStep::Spent {
                id: call.id.clone(),
                cost,
            };
            step.publish(self.turn).await;
            history.push(HistoryItem::Step(step));
        }
    }

    async fn record_result(
        &self,
        call: &ToolCall,
        output: ToolOutput,
        history: &mut Vec<HistoryItem>,
    ) {
        let failed = output.is_err();
        let result = output.unwrap_or_else(|why| format!("error: {why}"));
        let step = LlmStep::ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            result,
            failed,
        };
        step.publish(self.turn).await;
        history.push(HistoryItem::Step(step));
    }
}

async fn run_delegate(
    tool: &Tool,
    turn: &Turn,
    call: &ToolCall,
    (request, asked): (DelegateRequest, usize),
    mut limits: DelegationLimits,
) -> (Result<ToolOutput, CallerQuestion>, Cost) {
    let without = |why: String| (Ok(tool.sanitized(Err(why))), Cost::default());
    let ToolKind::Agent(delegate) = &tool.kind else {
        return without("this tool is no agent".to_owned());
    };
    let limit = tool.settings.timeout;
    limits.remaining = limits.remaining.min(Budget {
        time: Some(limit),
        ..Budget::default()
    });
    let Ok(outcome) =
        tokio::time::timeout(limit, delegate.run(turn, &call.id, request, &limits)).await
    else {
        delegate.record_timeout();
        return without(format!("the agent took longer than {limit:?}"));
    };
    match outcome {
        Ok((DelegateOutcome::Completed(text), cost)) => (Ok(tool.sanitized(Ok(text))), cost),
        Ok((DelegateOutcome::Failed(why), cost)) => (Ok(tool.sanitized(Err(why))), cost),
        Ok((DelegateOutcome::Question { task, .. }, cost))
            if asked > tool.settings.max_questions =>
        {
            let most = tool.settings.max_questions;
            if let Err(why) = delegate.cancel(&task, delegate.caller(turn)).await {
                tracing::debug!(task = %turn.task_id(), why, "the other agent did not cancel");
            }
            let why = format!(
                "the agent asks more than {most} questions (max_questions), and was stopped"
            );
            (Ok(tool.sanitized(Err(why))), cost)
        }
        Ok((
            DelegateOutcome::Question {
                words, needs_auth, ..
            },
            cost,
        )) => {
            let words = super::untrusted_text::sanitize(&words, tool.settings.max_output);
            (
                Err(CallerQuestion::delegate_question(call, &words, needs_auth)),
                cost,
            )
        }
        Err(why) => without(why),
    }
}

/// What another agent is told: the `message`, or all arguments if there is none.
fn delegate_prompt(arguments: &Map<String, Value>) -> String {
    let message = arguments
        .get("message")
        .and_then(Value::as_str)
        .filter(|_| arguments.len() == 1);
    message.map_or_else(
        || Value::Object(arguments.clone()).to_string(),
        str::to_owned,
    )
}

fn arguments(call: &ToolCall) -> Result<Map<String, Value>, String> {
    if call.arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(&call.arguments)
        .map_err(|_| "the arguments of a call must be a JSON object".to_owned())
}

/// The data of a part of a kind of its own, by that kind.
pub(super) fn data_of_kind<'a>(
    message: &'a Message,
    kind: &str,
) -> impl Iterator<Item = Value> + 'a {
    let kind = Value::from(kind).to_string();
    message.parts.iter().filter_map(move |part| {
        let told = part.metadata().and_then(|metadata| metadata.get("kind"));
        match &part.content {
            Content::Data(data) if told.is_some_and(|told| told.get() == kind) => data.read().ok(),
            _ => None,
        }
    })
}
