//! An agent that thinks: a model that answers, and calls tools until it can.

mod caller_question;
mod delegate;
mod history;
mod open_calls;
mod prompt;
mod settings;
mod spans;
mod tool;
mod toolset;
mod untrusted_text;

use std::fmt;
use std::sync::Arc;

use attache::jws::Signer;
use attache::model::{Message, MessageId, Object, Task};
use attache::{Agent, Failure, Outcome, Turn};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::chat_model::{
    ChatModel, Completion, CompletionEvent, ModelError, TokenUsage, ToolCall, record_completion,
    record_error,
};
use crate::lineage::{Budget, Cost, DelegationLimits, Lineage, USAGE_KEY};
use history::{HistoryItem, LlmStep};
use open_calls::CallRunner;
pub use settings::{LlmSettings, ToolSettings};
use tool::{Tool, ToolKind};
use toolset::{McpToolServer, Toolset};
pub(crate) use untrusted_text::{UNTRUSTED_DATA_RULE, fence, sanitize};

/// The name and the id of the answer: a task has one.
const ANSWER: &str = "answer";

/// Answers with a model, behind any endpoint of chat completions, and calls tools for it.
///
/// The answer streams as the result `answer`; what the model thinks and which tools it calls are told as typed status
/// updates, and are in the log of the task. From there a turn that was cut off goes on: a call that has its result is
/// not made again, and one without is made again only where its settings say so. What the work has cost is in the
/// metadata of the last status, and so of the task, under `attache.usage`.
///
/// ```
/// use attache_agents::{LlmAgent, LlmSettings, ModelSettings};
/// let model = ModelSettings {
///     url: "http://127.0.0.1:11434/v1".to_owned(),
///     name: "qwen3".to_owned(),
///     ..ModelSettings::default()
/// };
/// let agent = LlmAgent::new(LlmSettings { model, system: "Be brief.".to_owned(), ..LlmSettings::default() })?;
/// # Ok::<(), attache_agents::LlmSettingsError>(())
/// ```
#[derive(Debug)]
pub struct LlmAgent {
    settings: LlmSettings,
    model: ChatModel,
    tools: Vec<Arc<Tool>>,
    /// Whose tools are asked for when they are needed.
    servers: Vec<McpToolServer>,
    /// Its own name in lines of agents.
    agent_id: MessageId,
}

/// Settings that no such agent can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmSettingsError {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl LlmAgent {
    /// An agent with a model.
    ///
    /// # Errors
    /// The model or a tool cannot be as it is set.
    pub fn new(settings: LlmSettings) -> Result<Self, LlmSettingsError> {
        let model = ChatModel::new(settings.model.clone()).map_err(|bad| LlmSettingsError {
            key: "model",
            why: bad.0,
        })?;
        let (mut tools, mut servers) = (Vec::new(), Vec::new());
        for (name, tool) in &settings.tools {
            let bad = |why| LlmSettingsError { key: "tools", why };
            Tool::check(name, tool).map_err(bad)?;
            match McpToolServer::new(name, tool).map_err(bad)? {
                Some(server) => servers.push(server),
                None => tools.push(Arc::new(Tool::new(name, tool.clone()).map_err(bad)?)),
            }
        }
        Ok(Self {
            settings,
            model,
            tools,
            servers,
            agent_id: MessageId::random(),
        })
    }

    /// Signs for whom it calls those agents that are told (`forward_caller`): they believe it if they have our server as a
    /// [node](attache::auth::Access::node).
    #[must_use]
    pub fn with_signer(mut self, signer: &Signer) -> Self {
        // Nobody else has them yet.
        for tool in self.tools.iter_mut().filter_map(Arc::get_mut) {
            if let ToolKind::Agent(delegate) = &mut tool.kind {
                delegate.set_signer(signer.clone());
            }
        }
        self
    }
}

impl Agent for LlmAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let lineage = Lineage::from_turn(&turn);
        if let Some(why) = lineage.cycle_refusal(&self.agent_id) {
            return Ok(Outcome::rejected(why));
        }
        let limits = lineage.budget();
        let mut work = LlmTurn::new(self, &turn, limits).await;
        let outcome = match limits.time {
            // Those who work for it are stopped with it.
            Some(time) => timeout(time, work.run()).await.unwrap_or_else(|_| {
                Outcome::failed(format!(
                    "the work took longer than whoever asked has time: {time:?}"
                ))
            }),
            None => work.run().await,
        };
        turn.add_metadata(work.usage_metadata()).await;
        Ok(outcome)
    }

    /// Those who were asked for something are told that it is not needed.
    async fn on_canceled(&self, task: &Task) {
        let history = history::read_history(task);
        for open in open_calls::open_calls(&history).0 {
            let tool = self.tools.iter().find(|tool| tool.name == open.call.name);
            if let (Some(ToolKind::Agent(delegate)), Some(id)) =
                (tool.map(|tool| &tool.kind), &open.delegate_task)
                && let Err(why) = delegate.cancel(id, open.caller.as_deref()).await
            {
                tracing::debug!(task = %task.id, why, "the other agent did not cancel");
            }
        }
    }

    /// What a tool does to the world cannot be done twice.
    fn needs_durable_start(&self) -> bool {
        let is_repeatable = self.tools.iter().map(|tool| tool.settings.repeat);
        !is_repeatable
            .chain(self.servers.iter().map(McpToolServer::is_repeatable))
            .all(|is_repeatable| is_repeatable)
    }
}

/// One turn.
struct LlmTurn<'a> {
    llm: &'a LlmAgent,
    turn: &'a Turn,
    earlier_tasks: Vec<Task>,
    history: Vec<HistoryItem>,
    /// What the work may cost, by ourselves and by whoever asked.
    limits: Budget,
    started_at: Instant,
    /// What the model has cost that is in no step.
    unrecorded: Cost,
}

impl<'a> LlmTurn<'a> {
    async fn new(llm: &'a LlmAgent, turn: &'a Turn, requested: Budget) -> Self {
        let settings = &llm.settings;
        let own = Budget {
            tokens: settings.max_total_tokens,
            calls: settings.max_calls,
            time: turn.time_left(),
        };
        let limits = own.min(requested);
        let memory = llm.settings.memory;
        let earlier_tasks = if memory == 0 {
            Vec::new()
        } else {
            turn.context_tasks(memory).await
        };
        let history = history::read_history(turn.task());
        Self {
            llm,
            turn,
            earlier_tasks,
            history,
            limits,
            started_at: Instant::now(),
            unrecorded: Cost::default(),
        }
    }

    async fn run(&mut self) -> Outcome {
        loop {
            match self.run_open_calls().await {
                Ok(None) => {}
                Ok(Some(ask)) => return ask,
                Err(why) => return Outcome::failed(why),
            }
            if let Some(why) = self.exceeded_limit() {
                return Outcome::failed(why);
            }
            // Again: tools may have come and gone while others were called.
            let toolset = match self.toolset().await {
                Ok(toolset) => toolset,
                Err(why) => return Outcome::failed(why),
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

    /// What can be called now.
    async fn toolset(&self) -> Result<Toolset, String> {
        Toolset::new(&self.llm.tools, &self.llm.servers).await
    }

    /// Gives every open call its result, unless the caller must be asked, or the work cannot go on.
    async fn run_open_calls(&mut self) -> Result<Option<Outcome>, String> {
        let (open, answer) = open_calls::open_calls(&self.history);
        if open.is_empty() {
            return Ok(None);
        }
        let answer = answer.cloned();
        let toolset = self.toolset().await?;
        if let Some(why) =
            toolset.removed_tool_message(open.iter().map(|open| open.call.name.as_str()))
        {
            return Err(why);
        }
        let delegation_limits = self.delegation_limits(open.len());
        let calls = CallRunner {
            turn: self.turn,
            toolset: &toolset,
            limits: delegation_limits,
        };
        let ask = calls
            .run_open_calls(open, answer.as_ref(), &mut self.history)
            .await;
        Ok(ask.map(caller_question::CallerQuestion::outcome))
    }

    /// Why the model may not be asked again, if so.
    fn exceeded_limit(&self) -> Option<String> {
        let settings = &self.llm.settings;
        let steps = self
            .history
            .iter()
            .filter(|one| matches!(one, HistoryItem::Step(LlmStep::ToolCalls { .. })));
        if steps.count() >= settings.max_steps {
            return Some(format!(
                "the work took more than {} steps (max_steps)",
                settings.max_steps
            ));
        }
        let (spent, limits) = (self.total_cost(), self.limits);
        if let Some(limits) = limits.tokens.filter(|limits| spent.tokens() >= *limits) {
            return Some(format!(
                "the work took more than {limits} tokens (max_total_tokens)"
            ));
        }
        let limits = limits.calls.filter(|limits| spent.calls >= *limits)?;
        Some(format!(
            "the work took more than {limits} calls of models (max_calls)"
        ))
    }

    /// What each of so many others may cost that work for us at the same time.
    fn delegation_limits(&self, among: usize) -> DelegationLimits {
        let remaining = self.limits.minus(self.total_cost()).divided_by(among);
        let time = remaining
            .time
            .map(|time| time.saturating_sub(self.started_at.elapsed()));
        let remaining = Budget { time, ..remaining };
        DelegationLimits {
            agent_id: self.llm.agent_id.clone(),
            max_depth: self.llm.settings.max_depth,
            remaining,
        }
    }

    /// What this task has cost so far, those who worked for it included.
    fn total_cost(&self) -> Cost {
        self.history
            .iter()
            .fold(Cost::routing_cost(self.turn), |all, one| match one {
                HistoryItem::Step(LlmStep::ToolCalls { usage, .. }) => all.plus(usage.into_cost()),
                HistoryItem::Step(LlmStep::Spent { cost, .. }) => all.plus(*cost),
                _ => all,
            })
    }

    /// Asks the model; what it says streams.
    async fn ask_model(&mut self, toolset: &Toolset) -> Result<Completion, ModelError> {
        let settings = &self.llm.settings;
        let messages = prompt::build_messages(
            &settings.system,
            &self.earlier_tasks,
            settings.memory_size,
            &self.history,
        );
        let span = self.llm.model.span(&messages);
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
        let settings = &self.llm.settings;
        let mut answer = self
            .llm
            .model
            .request_completion(messages, &toolset.definitions(), self.turn.trace().as_ref())
            .await?;
        self.unrecorded.calls += 1;
        let mut writer = None;
        while let Some(piece) = answer.next().await {
            match piece? {
                CompletionEvent::Text(text) => {
                    let begin = || self.turn.writer(ANSWER).with_id(ANSWER);
                    writer.get_or_insert_with(begin).write(text).await;
                }
                CompletionEvent::Reasoning(text) if settings.show_reasoning => {
                    LlmStep::Reasoning { text }.publish(self.turn).await
                }
                CompletionEvent::Reasoning(_) => {}
            }
        }
        let completion = answer.take_completion();
        self.unrecorded = Cost {
            calls: 0,
            ..completion.usage.into_cost()
        }
        .plus(self.unrecorded);
        self.turn.count_tokens(
            completion.usage.input_tokens,
            completion.usage.output_tokens,
        );
        if let Some(writer) = writer.filter(|_| completion.calls.is_empty()) {
            writer.finish().await;
        }
        Ok(completion)
    }

    /// Writes down what the model wants to be called. Every call has an id that no other of the task has.
    async fn record_tool_calls(&mut self, completion: Completion) {
        let mut calls = completion.calls;
        for at in 0..calls.len() {
            let taken = |id: &str| {
                id.is_empty() || self.has_call(id) || calls[..at].iter().any(|call| call.id == id)
            };
            if taken(&calls[at].id) {
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
        let calls = self.history.iter().filter_map(|one| match one {
            HistoryItem::Step(LlmStep::ToolCalls { calls, .. }) => Some(calls),
            _ => None,
        });
        calls.flatten().any(|call: &ToolCall| call.id == id)
    }

    /// What the task has cost, those who worked for it included, as its log has it: what a restart cut off counts too. The time
    /// is ours alone: theirs is within it.
    fn usage_metadata(&self) -> Object {
        let before = self
            .turn
            .task()
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(USAGE_KEY));
        let before: Value = before
            .and_then(|before| before.read().ok())
            .unwrap_or_default();
        let took = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let cost = self.total_cost().plus(self.unrecorded);
        let usage = json!({
            "model": self.llm.settings.model.name,
            "calls": cost.calls,
            "inputTokens": cost.input_tokens,
            "outputTokens": cost.output_tokens,
            "milliseconds": before["milliseconds"].as_u64().unwrap_or(0).saturating_add(took),
        });
        let mut metadata = Object::new();
        metadata.insert(USAGE_KEY, usage);
        metadata
    }
}

impl TokenUsage {
    /// What one call of a model has cost.
    pub(crate) fn into_cost(self) -> Cost {
        Cost {
            calls: 1,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }
}

/// How a turn ends whose model wants nothing more.
fn completion_outcome(completion: &Completion) -> Outcome {
    match completion.finish.as_deref() {
        Some("content_filter") => Outcome::failed("the model was not allowed to go on"),
        _ if completion.text.is_empty() => Outcome::failed("the model said nothing"),
        Some("length") => Outcome::CompletedWith(Message::agent(
            "the answer was cut off at its longest (max_tokens)",
        )),
        _ => Outcome::Completed,
    }
}

impl fmt::Display for LlmSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for LlmSettingsError {}
