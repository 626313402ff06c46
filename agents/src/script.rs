//! An agent that is described by data: a file of rules, and no code.

mod fault;
mod play;
mod rules;
mod said;
mod template;

use std::fmt;

use attache::model::{AgentSkill, Call, Message, Role};
use attache::{Agent, Failure, Outcome, Turn};
use serde::{Deserialize, Serialize};

pub use fault::Fault;
use play::Scene;
use rules::{Rule, Rules};
use said::Said;

/// Under this key the message of a question remembers where its script goes on.
const PLACE: &str = "attache.script";

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
/// # Ok::<(), attache_agents::BadScript>(())
/// ```
#[derive(Debug)]
pub struct Script {
    rules: Vec<Rule>,
    faults: Vec<Fault>,
    help: String,
}

/// A file that is not a script. Says where and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadScript(String);

/// Where a script goes on when its question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    rule: usize,
    step: usize,
}

impl Script {
    /// Reads a script in TOML.
    ///
    /// # Errors
    /// The text is not TOML, has unknown keys, or asks for more than a script may do.
    pub fn parse(text: &str) -> Result<Self, BadScript> {
        let Rules { rules, faults } =
            toml::from_str(text).map_err(|error| BadScript(error.to_string()))?;
        rules::check(&rules).map_err(BadScript)?;
        let help = rules
            .iter()
            .filter_map(Rule::help)
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
        self.rules.iter().filter_map(Rule::skill)
    }

    /// What goes wrong on the way, for whoever stands before the agent: it does nothing about them itself.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Where the script begins for a message; `None` if no rule fits it.
    fn beginning(&self, message: &Message) -> Option<Place> {
        let text = message.text();
        let rule = self
            .rules
            .iter()
            .position(|rule| rule.fits(message, &text))?;
        Some(Place { rule, step: 0 })
    }

    /// What templates may ask for when `rule` is played for a message; an answer has no words of the rule's.
    fn said<'a>(&'a self, message: &'a Message, place: Place) -> Said<'a> {
        let words = if place.step == 0 {
            self.rules[place.rule].words().count()
        } else {
            0
        };
        Said::new(message, words, &self.help)
    }
}

impl Agent for Script {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let place = left_off(&turn).filter(|place| place.rule < self.rules.len());
        let Some(place) = place.or_else(|| self.beginning(turn.message())) else {
            return Ok(Outcome::rejected("no rule of the script fits this message"));
        };
        let rule = &self.rules[place.rule];
        let scene = Scene {
            turn: &turn,
            said: self.said(turn.message(), place),
        };
        let Some(farewell) = &rule.canceled else {
            return scene.play(rule, place).await;
        };
        tokio::select! {
            biased;
            () = turn.cancelled() => {
                turn.say(farewell.fill(&scene.said)).await;
                // The task is canceled, whatever is said here.
                Ok(Outcome::Completed)
            }
            outcome = scene.play(rule, place) => outcome,
        }
    }

    async fn reply(&self, message: &Message, _: &Call) -> Option<Message> {
        let place = self.beginning(message)?;
        let reply = self.rules[place.rule].reply.as_ref()?;
        Some(Message::agent(reply.fill(&self.said(message, place))))
    }
}

/// Where the newest question of the task left off.
fn left_off(turn: &Turn) -> Option<Place> {
    let asked = turn
        .task()
        .history
        .iter()
        .rev()
        .filter(|message| message.role == Role::Agent);
    asked
        .filter_map(|message| message.metadata.as_ref()?.get(PLACE))
        .find_map(|place| place.read().ok())
}

impl fmt::Display for BadScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end())
    }
}

impl std::error::Error for BadScript {}
