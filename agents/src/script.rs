//! Agent described by a TOML file of rules.
//!
//! `rules` has the file format, [`ScriptPlayer`] runs the steps of a rule, and `template` fills in texts.

mod fault;
mod player;
mod program;
mod rules;
mod template;
mod template_context;

use std::fmt;

use attache::model::{AgentSkill, Call, Message, Role};
use attache::{Agent, Failure, Outcome, Turn};
use serde::{Deserialize, Serialize};

pub use fault::Fault;
use player::ScriptPlayer;
use program::Instruction;
use rules::{ScriptFile, ScriptRule};
use template_context::TemplateContext;

/// Metadata key of a question that holds the [`ScriptPosition`] to continue at.
const POSITION_KEY: &str = "attache.script";

/// Agent that follows a file of rules: for demos, tests and mocks.
///
/// The first rule whose words the text begins with is run, step by step. A rule without words matches every message.
///
/// ```
/// let script = attache_agents::Script::parse(r#"
///     [[rule]]
///     word = "order"
///     steps = [
///         { say = "looking for {args}" },
///         { ask = "how many?" },
///         { write = { name = "receipt", text = "{word 1|one} of them" } },
///     ]
///
///     [[rule]]
///     reply = "say: order <something>"
/// "#)?;
/// # Ok::<(), attache_agents::ParseScriptError>(())
/// ```
#[derive(Debug)]
pub struct Script {
    rules: Vec<ScriptRule>,
    /// Steps of each rule.
    programs: Vec<Vec<Instruction>>,
    faults: Vec<Fault>,
    help: String,
}

/// Error for an invalid script, with line and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseScriptError(String);

/// Next step of a script whose question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ScriptPosition {
    rule: usize,
    step: usize,
}

impl Script {
    /// Parses a script in TOML.
    ///
    /// # Errors
    /// The text is not TOML, has unknown keys, or exceeds the limits of a script.
    pub fn parse(text: &str) -> Result<Self, ParseScriptError> {
        let ScriptFile { mut rules, faults } =
            toml::from_str(text).map_err(|error| ParseScriptError(error.to_string()))?;
        rules::check(&rules).map_err(ParseScriptError)?;
        let help = rules
            .iter()
            .filter_map(ScriptRule::help_text)
            .collect::<Vec<_>>()
            .join("\n");
        let programs = rules
            .iter_mut()
            .map(|rule| program::flatten(std::mem::take(&mut rule.steps)))
            .collect();
        Ok(Self {
            rules,
            programs,
            faults,
            help,
        })
    }

    /// Returns one skill for each rule that has a description (`about`), for the agent card.
    pub fn skills(&self) -> impl Iterator<Item = AgentSkill> + '_ {
        self.rules.iter().filter_map(ScriptRule::skill)
    }

    /// Returns the faults to inject. The agent itself ignores them; a proxy in front of it applies them.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns the first step for a message; `None` if no rule matches.
    fn first_position(&self, message: &Message) -> Option<ScriptPosition> {
        let text = message.text();
        let rule = self
            .rules
            .iter()
            .position(|rule| rule.matches(message, &text))?;
        Some(ScriptPosition { rule, step: 0 })
    }

    /// Returns the values for templates. Only the first message of a rule begins with the words of the rule.
    fn template_context<'a>(
        &'a self,
        message: &'a Message,
        position: ScriptPosition,
    ) -> TemplateContext<'a> {
        let words = if position.step == 0 {
            self.rules[position.rule].words().count()
        } else {
            0
        };
        TemplateContext::new(message, words, &self.help)
    }
}

impl Agent for Script {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let position = saved_position(&turn).filter(|position| position.rule < self.rules.len());
        let Some(position) = position.or_else(|| self.first_position(turn.message())) else {
            return Ok(Outcome::rejected(
                "no rule of the script matches this message",
            ));
        };
        let rule = &self.rules[position.rule];
        let player = ScriptPlayer {
            turn: &turn,
            context: self.template_context(turn.message(), position),
        };
        let program = &self.programs[position.rule];
        let Some(cancel_message) = &rule.canceled else {
            return player.run(program, position).await;
        };
        tokio::select! {
            biased;
            () = turn.cancelled() => {
                turn.say(cancel_message.fill(&player.context)).await;
                // The engine ignores the outcome of a canceled turn.
                Ok(Outcome::Completed)
            }
            outcome = player.run(program, position) => outcome,
        }
    }

    async fn reply(&self, message: &Message, _: &Call) -> Option<Message> {
        let position = self.first_position(message)?;
        let reply = self.rules[position.rule].reply.as_ref()?;
        Some(Message::agent(
            reply.fill(&self.template_context(message, position)),
        ))
    }
}

/// Returns the position stored in the newest question of the task.
fn saved_position(turn: &Turn) -> Option<ScriptPosition> {
    let questions = turn
        .task()
        .history
        .iter()
        .rev()
        .filter(|message| message.role == Role::Agent);
    questions
        .filter_map(|message| message.metadata.as_ref()?.get(POSITION_KEY))
        .find_map(|position| position.read().ok())
}

impl fmt::Display for ParseScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end())
    }
}

impl std::error::Error for ParseScriptError {}
