//! One turn of the LLM agent: the loop between the model and its tools.

use attache::model::{Message, Object, Task};
use attache::{Outcome, Turn};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::Instrument;

use super::LlmAgent;
use super::call_runner::{CallRunner, CallsEnd};
use super::history::{self, HistoryItem, LlmStep};
use super::open_calls::OpenCalls;
use super::prompt;
use super::toolset::Toolset;
use crate::chat_model::{
    Completion, CompletionEvent, ModelError, TokenUsage, ToolCall, record_completion, record_error,
};
use crate::cost::{Cost, USAGE_KEY};
use crate::delegation_limits::{Budget, DelegationLimits};

/// Name and id of the artifact with the answer. A task has one.
const ANSWER: &str = "answer";

/// State of one turn.
pub(super) struct LlmTurn<'a> {
    agent: &'a LlmAgent,
    turn: &'a Turn,
    earlier_tasks: Vec<Task>,
    history: Vec<HistoryItem>,
    /// Budget of the task: the smaller of our settings and the caller's grant.
    budget: Budget,
    started_at: Instant,
    /// Cost of model calls that no step in the history records yet.
    unrecorded: Cost,
}

impl<'a> LlmTurn<'a> {
    pub(super) async fn new(agent: &'a LlmAgent, turn: &'a Turn, granted: Budget) -> Self {
        let settings = &agent.settings;
        let own = Budget {
            tokens: settings.max_total_tokens,
            calls: settings.max_calls,
            time: turn.time_left(),
        };
        let earlier_tasks = if settings.memory == 0 {
            Vec::new()
        } else {
            turn.context_tasks(settings.memory).await
        };
        Self {
            agent,
            turn,
            earlier_tasks,
            history: history::read_history(turn.task()),
            budget: own.min(granted),
            started_at: Instant::now(),
            unrecorded: Cost::default(),
        }
    }

    /// Runs open calls and asks the model, until the model calls no more tools.
    pub(super) async fn run(&mut self) -> Outcome {
        loop {
            match self.run_open_calls().await {
                CallsEnd::Completed => {}
                CallsEnd::AskCaller(question) => return question.outcome(),
                CallsEnd::Failed(reason) => return Outcome::failed(reason),
            }
            if let Some(reason) = self.exceeded_limit() {
                return Outcome::failed(reason);
            }
            // Listed again: the tools of MCP servers may have changed during the calls.
            let toolset = match self.toolset().await {
                Ok(toolset) => toolset,
                Err(reason) => return Outcome::failed(reason),
            };
            match self.ask_model(&toolset).await {
                Ok(completion) if completion.calls.is_empty() => {
                    return completion_outcome(&completion);
                }
                Ok(completion) => self.record_tool_calls(completion).await,
                Err(ModelError { message, cause }) => {
                    tracing::warn!(task = %self.turn.task_id(), cause, "{message}");
                    return Outcome::failed(message);
                }
            }
        }
    }

    async fn toolset(&self) -> Result<Toolset, String> {
        Toolset::new(&self.agent.tools, &self.agent.servers).await
    }

    /// Completes every open call, unless the caller must be asked or a tool has been removed.
    async fn run_open_calls(&mut self) -> CallsEnd {
        let OpenCalls { calls, answer } = OpenCalls::from_history(&self.history);
        if calls.is_empty() {
            return CallsEnd::Completed;
        }
        let toolset = match self.toolset().await {
            Ok(toolset) => toolset,
            Err(reason) => return CallsEnd::Failed(reason),
        };
        let names = calls.iter().map(|open| open.call.name.as_str());
        if let Some(reason) = toolset.removed_tool_message(names) {
            return CallsEnd::Failed(reason);
        }
        let runner = CallRunner {
            turn: self.turn,
            toolset: &toolset,
            limits: self.delegation_limits(calls.len()),
        };
        runner.run(calls, answer, &mut self.history).await
    }

    /// Returns the reason if a limit forbids another model call.
    fn exceeded_limit(&self) -> Option<String> {
        let max_steps = self.agent.settings.max_steps;
        let steps = self.history.iter();
        let steps =
            steps.filter(|item| matches!(item, HistoryItem::Step(LlmStep::ToolCalls { .. })));
        if steps.count() >= max_steps {
            return Some(format!(
                "the task took more than {max_steps} steps (max_steps)"
            ));
        }
        let cost = self.total_cost();
        let max_tokens = self.budget.tokens.filter(|max| cost.tokens() >= *max);
        if let Some(max) = max_tokens {
            return Some(format!(
                "the task took more than {max} tokens (max_total_tokens)"
            ));
        }
        let max = self.budget.calls.filter(|max| cost.calls >= *max)?;
        Some(format!(
            "the task took more than {max} model calls (max_calls)"
        ))
    }

    /// Returns the limits of each of `delegates` that run concurrently.
    fn delegation_limits(&self, delegates: usize) -> DelegationLimits {
        let share = self.budget.minus(self.total_cost()).divided_by(delegates);
        let elapsed = self.started_at.elapsed();
        let remaining = Budget {
            time: share.time.map(|time| time.saturating_sub(elapsed)),
            ..share
        };
        DelegationLimits {
            agent_id: self.agent.agent_id.clone(),
            max_depth: self.agent.settings.max_depth,
            remaining,
        }
    }

    /// Returns the recorded cost of the task, including its delegates and its routing.
    fn total_cost(&self) -> Cost {
        let routing = Cost::of_routing(self.turn);
        self.history.iter().fold(routing, |total, item| match item {
            HistoryItem::Step(LlmStep::ToolCalls { usage, .. }) => total.plus(usage.into_cost()),
            HistoryItem::Step(LlmStep::Spent { cost, .. }) => total.plus(*cost),
            HistoryItem::Step(_) | HistoryItem::UserMessage(_) => total,
        })
    }

    /// Calls the model within a trace span, and streams its answer.
    async fn ask_model(&mut self, toolset: &Toolset) -> Result<Completion, ModelError> {
        let settings = &self.agent.settings;
        let messages = prompt::build_messages(
            &settings.system,
            &self.earlier_tasks,
            settings.memory_size,
            &self.history,
        );
        let span = self.agent.model.span(&messages);
        let completion = self
            .stream_completion(&messages, toolset)
            .instrument(span.clone())
            .await;
        match &completion {
            Ok(completion) => record_completion(&span, completion),
            Err(_) => record_error(&span, "model"),
        }
        completion
    }

    async fn stream_completion(
        &mut self,
        messages: &[Value],
        toolset: &Toolset,
    ) -> Result<Completion, ModelError> {
        let trace = self.turn.trace();
        let model = &self.agent.model;
        let mut stream = model
            .request_completion(messages, &toolset.definitions(), trace.as_ref())
            .await?;
        self.unrecorded.calls += 1;
        let mut writer = None;
        while let Some(event) = stream.next().await {
            match event? {
                CompletionEvent::Text(text) => {
                    let open = || self.turn.writer(ANSWER).with_id(ANSWER);
                    writer.get_or_insert_with(open).write(text).await;
                }
                CompletionEvent::Reasoning(text) if self.agent.settings.show_reasoning => {
                    LlmStep::Reasoning { text }.publish(self.turn).await;
                }
                CompletionEvent::Reasoning(_) => {}
            }
        }
        let completion = stream.take_completion();
        let usage = completion.usage;
        let tokens = Cost {
            calls: 0,
            ..usage.into_cost()
        };
        self.unrecorded = self.unrecorded.plus(tokens);
        self.turn
            .count_tokens(usage.input_tokens, usage.output_tokens);
        if let Some(writer) = writer.filter(|_| completion.calls.is_empty()) {
            writer.finish().await;
        }
        Ok(completion)
    }

    /// Records the tool calls of a completion as a step. Every call gets an id that is unique within the task.
    async fn record_tool_calls(&mut self, completion: Completion) {
        let mut calls = completion.calls;
        for at in 0..calls.len() {
            let is_taken = |id: &str| {
                id.is_empty() || self.has_call(id) || calls[..at].iter().any(|call| call.id == id)
            };
            if is_taken(&calls[at].id) {
                let number = self.history.len();
                calls[at].id = format!("call-{number}-{at}");
            }
        }
        let step = LlmStep::ToolCalls {
            text: completion.text,
            calls,
            usage: completion.usage,
        };
        step.publish(self.turn).await;
        self.history.push(HistoryItem::Step(step));
        self.unrecorded = Cost::default();
    }

    fn has_call(&self, id: &str) -> bool {
        let calls = self.history.iter().filter_map(|item| match item {
            HistoryItem::Step(LlmStep::ToolCalls { calls, .. }) => Some(calls),
            _ => None,
        });
        calls.flatten().any(|call: &ToolCall| call.id == id)
    }

    /// Returns the metadata with the cost of the task, including turns that a restart interrupted.
    ///
    /// The time is that of this agent only; delegates work within it.
    pub(super) fn usage_metadata(&self) -> Object {
        let metadata = self.turn.task().metadata.as_ref();
        let earlier: Value = metadata
            .and_then(|metadata| metadata.get(USAGE_KEY)?.read().ok())
            .unwrap_or_default();
        let earlier_time = earlier["milliseconds"].as_u64().unwrap_or(0);
        let time = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let cost = self.total_cost().plus(self.unrecorded);
        let usage = json!({
            "model": self.agent.settings.model.name,
            "calls": cost.calls,
            "inputTokens": cost.input_tokens,
            "outputTokens": cost.output_tokens,
            "milliseconds": earlier_time.saturating_add(time),
        });
        let mut metadata = Object::new();
        metadata.insert(USAGE_KEY, usage);
        metadata
    }
}

impl TokenUsage {
    /// Returns the cost of one model call with these token counts.
    pub(crate) fn into_cost(self) -> Cost {
        Cost {
            calls: 1,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }
}

/// Returns the outcome of a turn whose last completion has no tool calls.
fn completion_outcome(completion: &Completion) -> Outcome {
    match completion.finish.as_deref() {
        Some("content_filter") => Outcome::failed("a content filter stopped the model"),
        _ if completion.text.is_empty() => Outcome::failed("the answer of the model is empty"),
        Some("length") => Outcome::CompletedWith(Message::agent(
            "the answer was truncated at its maximum length (max_tokens)",
        )),
        _ => Outcome::Completed,
    }
}
