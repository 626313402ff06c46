//! An agent that is described by data: a file of rules, and no code.

mod fault;
mod player;
mod rules;
mod template;
mod template_context;

use std::fmt;

use attache::model::{AgentSkill, Call, Message, Role};
use attache::{Agent, Failure, Outcome, Turn};
use serde::{Deserialize, Serialize};

pub use fault::Fault;
use player::ScriptPlayer;
use rules::{ScriptFile, ScriptRule};
use template_context::TemplateContext;

/// Under this key the message of a question remembers where its script goes on.
const POSITION_KEY: &str = "attache.script";

/// An agent that does what a file of rules says: for demos, tests and mocks.
///
/// The first rule whose words the text begins with is played, step by step; one without words fits everything.
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
    faults: Vec<Fault>,
    help: String,
}

/// A file that is not a script. Says where and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseScriptError(String);

/// Where a script goes on when its question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ScriptPosition {
    rule: usize,
    step: usize,
}

impl Script {
    /// Reads a script in TOML.
    ///
    /// # Errors
    /// The text is not TOML, has unknown keys, or asks for more than a script may do.
    pub fn parse(text: &str) -> Result<Self, ParseScriptError> {
        let ScriptFile { rules, faults } =
            toml::from_str(text).map_err(|error| ParseScriptError(error.to_string()))?;
        rules::check(&rules).map_err(ParseScriptError)?;
        let help = rules
            .iter()
            .filter_map(ScriptRule::help_text)
            .collect::<Vec<_>>()
            .join("\n");
        Ok(Self {
            rules,
            faults,
            help,
        })
    }

    /// What the script can do, for a card: a skill for each rule that says what it is about.
    pub fn skills(&self) -> impl Iterator<Item = AgentSkill> + '_ {
        self.rules.iter().filter_map(ScriptRule::skill)
    }

    /// What goes wrong on the way, for whoever stands before the agent: it does nothing about them itself.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Where the script begins for a message; `None` if no rule fits it.
    fn first_position(&self, message: &Message) -> Option<ScriptPosition> {
        let text = message.text();
        let rule = self
            .rules
            .iter()
            .position(|rule| rule.matches(message, &text))?;
        Some(ScriptPosition { rule, step: 0 })
    }

    /// What templates may ask for when `rule` is played for a message; an answer has no words of the rule's.
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
            return Ok(Outcome::rejected("no rule of the script fits this message"));
        };
        let rule = &self.rules[position.rule];
        let player = ScriptPlayer {
            turn: &turn,
            context: self.template_context(turn.message(), position),
        };
        let Some(cancel_message) = &rule.canceled else {
            return player.play(rule, position).await;
        };
        tokio::select! {
            biased;
            () = turn.cancelled() => {
                turn.say(cancel_message.fill(&player.context)).await;
                // The task is canceled, whatever is said here.
                Ok(Outcome::Completed)
            }
            outcome = player.play(rule, position) => outcome,
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

/// Where the newest question of the task left off.
fn saved_position(turn: &Turn) -> Option<ScriptPosition> {
    let asked = turn
        .task()
        .history
        .iter()
        .rev()
        .filter(|message| message.role == Role::Agent);
    asked
        .filter_map(|message| message.metadata.as_ref()?.get(POSITION_KEY))
        .find_map(|position| position.read().ok())
}

impl fmt::Display for ParseScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end())
    }
}

impl std::error::Error for ParseScriptError {}
