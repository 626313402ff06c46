//! Execution of open tool calls.

use std::collections::HashMap;
use std::sync::Arc;

use attache::Turn;
use attache::model::{Message, TaskId};
use serde_json::{Map, Value};
use tokio::task::{Id, JoinSet};
use tracing::{Instrument, Span};

use super::caller_question::{CallerQuestion, answers_call, check_approval, read_result};
use super::delegate::{Delegate, DelegateOutcome, DelegateRequest};
use super::history::{HistoryItem, LlmStep};
use super::open_calls::OpenCall;
use super::spans;
use super::tool::{Tool, ToolKind, ToolOutput};
use super::toolset::Toolset;
use super::untrusted_text::sanitize;
use crate::chat_model::ToolCall;
use crate::cost::Cost;
use crate::delegation_limits::{Budget, DelegationLimits};

/// Message for a question that the caller did not answer before its timeout.
const UNANSWERED: &str = "the caller did not answer in time";

/// Executes open calls, concurrently unless they need the caller.
pub(super) struct CallRunner<'a> {
    pub(super) turn: &'a Turn,
    pub(super) toolset: &'a Toolset,
    /// Limits of each delegate.
    pub(super) limits: DelegationLimits,
}

/// End of a round of calls.
pub(super) enum CallsEnd {
    /// Every call has a result.
    Completed,
    /// The caller must answer before the open calls can continue.
    AskCaller(CallerQuestion),
    /// The task cannot continue.
    Failed(String),
}

/// Next action for an open call.
enum CallAction {
    Run,
    Delegate(DelegateRequest),
    AskCaller(CallerQuestion),
    /// The call has a result without being executed.
    Result(ToolOutput),
}

/// End of one executed call.
enum CallEnd {
    Result(ToolOutput),
    /// The delegate asks the caller. The cost of its task is reported when it ends.
    Question(CallerQuestion),
}

/// Executed call.
struct FinishedCall {
    /// Position among the open calls.
    index: usize,
    call: ToolCall,
    end: CallEnd,
    cost: Cost,
}

/// Questions and running calls of a round.
#[derive(Default)]
struct Round {
    /// Questions by the position of their call.
    questions: Vec<(usize, CallerQuestion)>,
    running: JoinSet<FinishedCall>,
    /// Calls by the id of their spawned task, to report panics.
    calls: HashMap<Id, ToolCall>,
}

impl CallRunner<'_> {
    /// Executes all calls that do not need the caller, and appends their steps to `history`.
    ///
    /// `answer` is the caller's answer to the first question of the previous round.
    pub(super) async fn run(
        &self,
        open: Vec<OpenCall>,
        answer: Option<Message>,
        history: &mut Vec<HistoryItem>,
    ) -> CallsEnd {
        let mut answer = answer.as_ref();
        let mut round = Round::default();
        for (index, open) in open.into_iter().enumerate() {
            self.begin(index, open, &mut answer, &mut round, history)
                .await;
        }
        while let Some(joined) = round.running.join_next().await {
            match joined {
                Ok(finished) => self.finish(finished, &mut round.questions, history).await,
                Err(error) => {
                    tracing::error!(%error, task = %self.turn.task_id(), "a tool panicked");
                    if let Some(call) = round.calls.remove(&error.id()) {
                        let output = Err("the tool failed".to_owned());
                        self.record_result(&call, output, history).await;
                    }
                }
            }
        }
        let first = round.questions.into_iter().min_by_key(|(index, _)| *index);
        first.map_or(CallsEnd::Completed, |(_, question)| {
            CallsEnd::AskCaller(question)
        })
    }

    /// Starts one call, records its result, or notes its question.
    async fn begin(
        &self,
        index: usize,
        open: OpenCall,
        answer: &mut Option<&Message>,
        round: &mut Round,
        history: &mut Vec<HistoryItem>,
    ) {
        let found = self.tool(&open.call).and_then(|tool| {
            let arguments = parse_arguments(&open.call)?;
            Ok((tool, arguments))
        });
        let (tool, arguments) = match found {
            Ok(found) => found,
            Err(reason) => return self.record_result(&open.call, Err(reason), history).await,
        };
        match self.next_action(&tool, &open, &arguments, answer) {
            CallAction::Result(output) => {
                let output = tool.sanitized(output);
                self.record_result(&open.call, output, history).await;
            }
            CallAction::AskCaller(question) => round.questions.push((index, question)),
            CallAction::Run => {
                self.record_start(&open.call, history).await;
                let turn = self.turn.clone();
                let call = open.call.clone();
                round.spawn(&open.call, async move {
                    let output = tool.call(&turn, &call, &arguments).await;
                    FinishedCall {
                        index,
                        call,
                        end: CallEnd::Result(output),
                        cost: Cost::default(),
                    }
                });
            }
            CallAction::Delegate(request) => {
                if matches!(request, DelegateRequest::Start(_)) {
                    self.record_start(&open.call, history).await;
                }
                let run = DelegateRun {
                    index,
                    turn: self.turn.clone(),
                    tool,
                    call: open.call.clone(),
                    // Each message that was sent allows the delegate one question.
                    questions: open.messages_sent
                        + usize::from(!matches!(request, DelegateRequest::Follow(_))),
                    limits: self.limits.clone(),
                };
                round.spawn(&open.call, run.run(request));
            }
        }
    }

    fn tool(&self, call: &ToolCall) -> Result<Arc<Tool>, String> {
        self.toolset.tool(&call.name).cloned().ok_or_else(|| {
            let names = self.toolset.names().collect::<Vec<_>>().join(", ");
            format!("there is no tool of that name; there are: {names}")
        })
    }

    /// Decides how an open call continues. Consumes the caller's answer if it belongs to this call.
    fn next_action(
        &self,
        tool: &Tool,
        open: &OpenCall,
        arguments: &Map<String, Value>,
        answer: &mut Option<&Message>,
    ) -> CallAction {
        let callers = &tool.settings.callers;
        let caller = self.turn.caller().name();
        if !callers.is_empty() && !callers.iter().any(|name| name == caller) {
            // The agent's own permissions must not serve every caller (confused deputy).
            let reason = "refused: this tool may not be called for this caller (callers)";
            return CallAction::Result(Err(reason.to_owned()));
        }
        if let (Some(task), ToolKind::Agent(_)) = (&open.delegate_task, &tool.kind) {
            return self.resume_delegate(task, answer);
        }
        if open.is_started && !tool.settings.repeat {
            let reason = "a restart interrupted the call; whether it had an effect is unknown";
            return CallAction::Result(Err(reason.to_owned()));
        }
        let needs_approval = tool.settings.approval && !open.is_started;
        if needs_approval || matches!(tool.kind, ToolKind::Client) {
            let id = &open.call.id;
            let Some(answer) = answer.take_if(|answer| answers_call(answer, id)) else {
                return CallAction::AskCaller(if needs_approval {
                    CallerQuestion::approval(&open.call, tool.has_changed())
                } else {
                    CallerQuestion::tool_use(&open.call)
                });
            };
            if self.turn.is_unanswered() {
                return CallAction::Result(Err(UNANSWERED.to_owned()));
            }
            if !needs_approval {
                return CallAction::Result(read_result(answer, id));
            }
            if let Err(text) = check_approval(answer, id) {
                let reason = format!("the user did not approve this call: {text}");
                return CallAction::Result(Err(reason));
            }
        }
        match &tool.kind {
            ToolKind::Agent(_) => {
                CallAction::Delegate(DelegateRequest::Start(delegate_prompt(arguments)))
            }
            _ => CallAction::Run,
        }
    }

    /// Continues the task of a delegate: with the caller's answer, or by waiting for its end.
    fn resume_delegate(&self, task: &TaskId, answer: &mut Option<&Message>) -> CallAction {
        match answer.take() {
            Some(_) if self.turn.is_unanswered() => CallAction::Result(Err(UNANSWERED.to_owned())),
            Some(answer) => {
                let answer = Box::new(answer.clone());
                CallAction::Delegate(DelegateRequest::Answer(task.clone(), answer))
            }
            None => CallAction::Delegate(DelegateRequest::Follow(task.clone())),
        }
    }

    async fn finish(
        &self,
        finished: FinishedCall,
        questions: &mut Vec<(usize, CallerQuestion)>,
        history: &mut Vec<HistoryItem>,
    ) {
        match finished.end {
            CallEnd::Result(output) => {
                self.record_cost(&finished.call, finished.cost, history)
                    .await;
                self.record_result(&finished.call, output, history).await;
            }
            CallEnd::Question(question) => questions.push((finished.index, question)),
        }
    }

    async fn record_start(&self, call: &ToolCall, history: &mut Vec<HistoryItem>) {
        let step = LlmStep::ToolStarted {
            id: call.id.clone(),
            name: call.name.clone(),
        };
        self.record(step, history).await;
    }

    async fn record_cost(&self, call: &ToolCall, cost: Cost, history: &mut Vec<HistoryItem>) {
        if cost != Cost::default() {
            let id = call.id.clone();
            self.record(LlmStep::Spent { id, cost }, history).await;
        }
    }

    async fn record_result(
        &self,
        call: &ToolCall,
        output: ToolOutput,
        history: &mut Vec<HistoryItem>,
    ) {
        let failed = output.is_err();
        let step = LlmStep::ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            result: output.unwrap_or_else(|reason| format!("error: {reason}")),
            failed,
        };
        self.record(step, history).await;
    }

    async fn record(&self, step: LlmStep, history: &mut Vec<HistoryItem>) {
        step.publish(self.turn).await;
        history.push(HistoryItem::Step(step));
    }
}

impl Round {
    /// Runs a call in the background, within its trace span.
    fn spawn(
        &mut self,
        call: &ToolCall,
        work: impl Future<Output = FinishedCall> + Send + 'static,
    ) {
        let traced = async move {
            let finished = work.await;
            if let CallEnd::Result(output) = &finished.end {
                spans::record_output(&Span::current(), output);
            }
            finished
        };
        let handle = self
            .running
            .spawn(traced.instrument(spans::tool_span(call)));
        self.calls.insert(handle.id(), call.clone());
    }
}

/// Call of a delegate.
struct DelegateRun {
    index: usize,
    turn: Turn,
    tool: Arc<Tool>,
    call: ToolCall,
    /// Number of questions that the delegate has asked if it asks another one.
    questions: usize,
    limits: DelegationLimits,
}

impl DelegateRun {
    async fn run(self, request: DelegateRequest) -> FinishedCall {
        let (end, cost) = match &self.tool.kind {
            ToolKind::Agent(delegate) => self.run_delegate(delegate, request).await,
            _ => (self.failed("this tool is not an agent"), Cost::default()),
        };
        FinishedCall {
            index: self.index,
            call: self.call,
            end,
            cost,
        }
    }

    async fn run_delegate(&self, delegate: &Delegate, request: DelegateRequest) -> (CallEnd, Cost) {
        let timeout = self.tool.settings.timeout;
        let mut limits = self.limits.clone();
        limits.remaining = limits.remaining.min(Budget {
            time: Some(timeout),
            ..Budget::default()
        });
        let run = delegate.run(&self.turn, &self.call.id, request, &limits);
        let Ok(result) = tokio::time::timeout(timeout, run).await else {
            delegate.record_timeout();
            let reason = format!("the agent took longer than {timeout:?}");
            return (self.failed(&reason), Cost::default());
        };
        match result {
            Ok((outcome, cost)) => (self.end(delegate, outcome).await, cost),
            Err(reason) => (self.failed(&reason), Cost::default()),
        }
    }

    async fn end(&self, delegate: &Delegate, outcome: DelegateOutcome) -> CallEnd {
        match outcome {
            DelegateOutcome::Completed(text) => CallEnd::Result(self.tool.sanitized(Ok(text))),
            DelegateOutcome::Failed(reason) => self.failed(&reason),
            DelegateOutcome::Question { task, .. }
                if self.questions > self.tool.settings.max_questions =>
            {
                let caller = delegate.signed_caller(&self.turn);
                if let Err(error) = delegate.cancel(&task, caller).await {
                    let task = self.turn.task_id();
                    tracing::debug!(%task, error, "the delegate did not cancel its task");
                }
                let max = self.tool.settings.max_questions;
                self.failed(&format!(
                    "the agent asks more than {max} questions (max_questions), and was canceled"
                ))
            }
            DelegateOutcome::Question {
                text, needs_auth, ..
            } => {
                let text = sanitize(&text, self.tool.settings.max_output);
                CallEnd::Question(CallerQuestion::delegate(&self.call, &text, needs_auth))
            }
        }
    }

    fn failed(&self, reason: &str) -> CallEnd {
        CallEnd::Result(self.tool.sanitized(Err(reason.to_owned())))
    }
}

/// Returns the message for a delegate: the argument `message` if it is the only one, else all arguments as JSON.
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

fn parse_arguments(call: &ToolCall) -> Result<Map<String, Value>, String> {
    if call.arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(&call.arguments)
        .map_err(|_| "the arguments of a call must be a JSON object".to_owned())
}
