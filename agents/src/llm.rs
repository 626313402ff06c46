//! An agent that thinks: a model that answers, and calls tools until it can.

mod ask;
mod calls;
mod delegate;
mod fence;
mod kit;
mod settings;
mod spans;
mod steps;
mod talk;
mod tool;

use std::fmt;
use std::sync::Arc;

use attache::jws::Signer;
use attache::model::{Message, MessageId, Object, Task};
use attache::{Agent, Failure, Outcome, Turn};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::lineage::{Budget, Cost, Leave, Lineage, USAGE};
use crate::model::{Call, Failed, Model, Piece, Said, Usage, answered, failed};
use calls::Calls;
pub(crate) use fence::{RULE, clean, fenced};
use kit::{Kit, Server};
pub use settings::{LlmSettings, ToolSettings};
use steps::{Happened, Step};
use tool::{Tool, Way};

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
/// use attache_agents::{Llm, LlmSettings, ModelSettings};
/// let model = ModelSettings {
///     url: "http://127.0.0.1:11434/v1".to_owned(),
///     name: "qwen3".to_owned(),
///     ..ModelSettings::default()
/// };
/// let agent = Llm::new(LlmSettings { model, system: "Be brief.".to_owned(), ..LlmSettings::default() })?;
/// # Ok::<(), attache_agents::BadLlm>(())
/// ```
#[derive(Debug)]
pub struct Llm {
    settings: LlmSettings,
    model: Model,
    tools: Vec<Arc<Tool>>,
    /// Whose tools are asked for when they are needed.
    servers: Vec<Server>,
    /// Its own name in lines of agents.
    me: MessageId,
}

/// Settings that no such agent can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLlm {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl Llm {
    /// An agent with a model.
    ///
    /// # Errors
    /// The model or a tool cannot be as it is set.
    pub fn new(settings: LlmSettings) -> Result<Self, BadLlm> {
        let model = Model::new(settings.model.clone()).map_err(|bad| BadLlm {
            key: "model",
            why: bad.0,
        })?;
        let (mut tools, mut servers) = (Vec::new(), Vec::new());
        for (name, tool) in &settings.tools {
            let bad = |why| BadLlm { key: "tools", why };
            Tool::check(name, tool).map_err(bad)?;
            match Server::new(name, tool).map_err(bad)? {
                Some(server) => servers.push(server),
                None => tools.push(Arc::new(Tool::new(name, tool.clone()).map_err(bad)?)),
            }
        }
        Ok(Self {
            settings,
            model,
            tools,
            servers,
            me: MessageId::random(),
        })
    }

    /// Signs for whom it calls those agents that are told (`forward_caller`): they believe it if they have our server as a
    /// [node](attache::auth::Access::node).
    #[must_use]
    pub fn signed_by(mut self, signer: &Signer) -> Self {
        // Nobody else has them yet.
        for tool in self.tools.iter_mut().filter_map(Arc::get_mut) {
            if let Way::Agent(delegate) = &mut tool.way {
                delegate.signed_by(signer.clone());
            }
        }
        self
    }
}

impl Agent for Llm {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let lineage = Lineage::of(&turn);
        if let Some(why) = lineage.refuses(&self.me) {
            return Ok(Outcome::rejected(why));
        }
        let most = lineage.budget();
        let mut work = Work::new(self, &turn, most).await;
        let outcome = match most.time {
            // Those who work for it are stopped with it.
            Some(time) => timeout(time, work.run()).await.unwrap_or_else(|_| {
                Outcome::failed(format!(
                    "the work took longer than whoever asked has time: {time:?}"
                ))
            }),
            None => work.run().await,
        };
        turn.metadata(work.usage()).await;
        Ok(outcome)
    }

    /// Those who were asked for something are told that it is not needed.
    async fn canceled(&self, task: &Task) {
        let happened = steps::of(task);
        for open in calls::open(&happened).0 {
            let tool = self.tools.iter().find(|tool| tool.name == open.call.name);
            if let (Some(Way::Agent(delegate)), Some(id)) = (tool.map(|tool| &tool.way), &open.task)
                && let Err(why) = delegate.cancel(id, open.caller.as_deref()).await
            {
                tracing::debug!(task = %task.id, why, "the other agent did not cancel");
            }
        }
    }

    /// What a tool does to the world cannot be done twice.
    fn durable_start(&self) -> bool {
        let repeats = self.tools.iter().map(|tool| tool.settings.repeat);
        !repeats
            .chain(self.servers.iter().map(Server::repeats))
            .all(|repeats| repeats)
    }
}

/// One turn.
struct Work<'a> {
    llm: &'a Llm,
    turn: &'a Turn,
    earlier: Vec<Task>,
    happened: Vec<Happened>,
    /// What the work may cost, by ourselves and by whoever asked.
    most: Budget,
    begun: Instant,
    /// What the model has cost that is in no step.
    unrecorded: Cost,
}

impl<'a> Work<'a> {
    async fn new(llm: &'a Llm, turn: &'a Turn, said: Budget) -> Self {
        let settings = &llm.settings;
        let own = Budget {
            tokens: settings.max_total_tokens,
            calls: settings.max_calls,
            time: turn.time_left(),
        };
        let most = own.within(said);
        let memory = llm.settings.memory;
        let earlier = if memory == 0 {
            Vec::new()
        } else {
            turn.context(memory).await
        };
        let happened = steps::of(turn.task());
        Self {
            llm,
            turn,
            earlier,
            happened,
            most,
            begun: Instant::now(),
            unrecorded: Cost::default(),
        }
    }

    async fn run(&mut self) -> Outcome {
        loop {
            match self.settle().await {
                Ok(None) => {}
                Ok(Some(ask)) => return ask,
                Err(why) => return Outcome::failed(why),
            }
            if let Some(why) = self.exhausted() {
                return Outcome::failed(why);
            }
            // Again: tools may have come and gone while others were called.
            let kit = match self.kit().await {
                Ok(kit) => kit,
                Err(why) => return Outcome::failed(why),
            };
            match self.think(&kit).await {
                Ok(said) if said.calls.is_empty() => return ended(&said),
                Ok(said) => self.want(said).await,
                Err(Failed { words, cause }) => {
                    tracing::warn!(task = %self.turn.task_id(), cause, "{words}");
                    return Outcome::failed(words);
                }
            }
        }
    }

    /// What can be called now.
    async fn kit(&self) -> Result<Kit, String> {
        Kit::new(&self.llm.tools, &self.llm.servers).await
    }

    /// Gives every open call its result, unless the caller must be asked, or the work cannot go on.
    async fn settle(&mut self) -> Result<Option<Outcome>, String> {
        let (open, answer) = calls::open(&self.happened);
        if open.is_empty() {
            return Ok(None);
        }
        let answer = answer.cloned();
        let kit = self.kit().await?;
        if let Some(why) = kit.vanished(open.iter().map(|open| open.call.name.as_str())) {
            return Err(why);
        }
        let leave = self.leave(open.len());
        let calls = Calls {
            turn: self.turn,
            kit: &kit,
            leave,
        };
        let ask = calls
            .settle(open, answer.as_ref(), &mut self.happened)
            .await;
        Ok(ask.map(ask::Ask::outcome))
    }

    /// Why the model may not be asked again, if so.
    fn exhausted(&self) -> Option<String> {
        let settings = &self.llm.settings;
        let steps = self
            .happened
            .iter()
            .filter(|one| matches!(one, Happened::Did(Step::ToolCalls { .. })));
        if steps.count() >= settings.max_steps {
            return Some(format!(
                "the work took more than {} steps (max_steps)",
                settings.max_steps
            ));
        }
        let (spent, most) = (self.in_all(), self.most);
        if let Some(most) = most.tokens.filter(|most| spent.tokens() >= *most) {
            return Some(format!(
                "the work took more than {most} tokens (max_total_tokens)"
            ));
        }
        let most = most.calls.filter(|most| spent.calls >= *most)?;
        Some(format!(
            "the work took more than {most} calls of models (max_calls)"
        ))
    }

    /// What each of so many others may cost that work for us at the same time.
    fn leave(&self, among: usize) -> Leave {
        let left = self.most.after(self.in_all()).shared(among);
        let time = left
            .time
            .map(|time| time.saturating_sub(self.begun.elapsed()));
        let left = Budget { time, ..left };
        Leave {
            me: self.llm.me.clone(),
            max_depth: self.llm.settings.max_depth,
            left,
        }
    }

    /// What this task has cost so far, those who worked for it included.
    fn in_all(&self) -> Cost {
        self.happened
            .iter()
            .fold(Cost::before(self.turn), |all, one| match one {
                Happened::Did(Step::ToolCalls { usage, .. }) => all.and(usage.of_one_call()),
                Happened::Did(Step::Spent { cost, .. }) => all.and(*cost),
                _ => all,
            })
    }

    /// Asks the model; what it says streams.
    async fn think(&mut self, kit: &Kit) -> Result<Said, Failed> {
        let settings = &self.llm.settings;
        let messages = talk::messages(
            &settings.system,
            &self.earlier,
            settings.memory_size,
            &self.happened,
        );
        let span = self.llm.model.span(&messages);
        let said = self.listen(&messages, kit).instrument(span.clone()).await;
        match &said {
            Ok(said) => answered(&span, said),
            Err(_) => failed(&span, "model"),
        }
        said
    }

    async fn listen(&mut self, messages: &[Value], kit: &Kit) -> Result<Said, Failed> {
        let settings = &self.llm.settings;
        let mut answer = self
            .llm
            .model
            .ask(messages, &kit.offers(), self.turn.trace().as_ref())
            .await?;
        self.unrecorded.calls += 1;
        let mut writer = None;
        while let Some(piece) = answer.next().await {
            match piece? {
                Piece::Text(text) => {
                    let begin = || self.turn.writer(ANSWER).with_id(ANSWER);
                    writer.get_or_insert_with(begin).write(text).await;
                }
                Piece::Reasoning(text) if settings.show_reasoning => {
                    Step::Reasoning { text }.tell(self.turn).await
                }
                Piece::Reasoning(_) => {}
            }
        }
        let said = answer.said();
        self.unrecorded = Cost {
            calls: 0,
            ..said.usage.of_one_call()
        }
        .and(self.unrecorded);
        self.turn
            .count_tokens(said.usage.input_tokens, said.usage.output_tokens);
        if let Some(writer) = writer.filter(|_| said.calls.is_empty()) {
            writer.finish().await;
        }
        Ok(said)
    }

    /// Writes down what the model wants to be called. Every call has an id that no other of the task has.
    async fn want(&mut self, said: Said) {
        let mut calls = said.calls;
        for at in 0..calls.len() {
            let taken = |id: &str| {
                id.is_empty() || self.knows(id) || calls[..at].iter().any(|call| call.id == id)
            };
            if taken(&calls[at].id) {
                let number = self.happened.len();
                calls[at].id = format!("call-{number}-{at}");
            }
        }
        let step = Step::ToolCalls {
            text: said.text,
            calls,
            usage: said.usage,
        };
        step.tell(self.turn).await;
        self.happened.push(Happened::Did(step));
        self.unrecorded = Cost::default();
    }

    fn knows(&self, id: &str) -> bool {
        let calls = self.happened.iter().filter_map(|one| match one {
            Happened::Did(Step::ToolCalls { calls, .. }) => Some(calls),
            _ => None,
        });
        calls.flatten().any(|call: &Call| call.id == id)
    }

    /// What the task has cost, those who worked for it included, as its log has it: what a restart cut off counts too. The time
    /// is ours alone: theirs is within it.
    fn usage(&self) -> Object {
        let before = self
            .turn
            .task()
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(USAGE));
        let before: Value = before
            .and_then(|before| before.read().ok())
            .unwrap_or_default();
        let took = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let cost = self.in_all().and(self.unrecorded);
        let usage = json!({
            "model": self.llm.settings.model.name,
            "calls": cost.calls,
            "inputTokens": cost.input_tokens,
            "outputTokens": cost.output_tokens,
            "milliseconds": before["milliseconds"].as_u64().unwrap_or(0).saturating_add(took),
        });
        let mut metadata = Object::new();
        metadata.insert(USAGE, usage);
        metadata
    }
}

impl Usage {
    /// What one call of a model has cost.
    pub(crate) fn of_one_call(self) -> Cost {
        Cost {
            calls: 1,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }
}

/// How a turn ends whose model wants nothing more.
fn ended(said: &Said) -> Outcome {
    match said.finish.as_deref() {
        Some("content_filter") => Outcome::failed("the model was not allowed to go on"),
        _ if said.text.is_empty() => Outcome::failed("the model said nothing"),
        Some("length") => Outcome::CompletedWith(Message::agent(
            "the answer was cut off at its longest (max_tokens)",
        )),
        _ => Outcome::Completed,
    }
}

impl fmt::Display for BadLlm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadLlm {}
