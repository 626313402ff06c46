//! An agent that passes every task on to another: by the skill that is asked for, or by a rule.

use std::fmt;

use attache::model::{AgentSkill, Call, Message, Role, Task};
use attache::{Agent, Failure, Outcome, Turn};
use serde::{Deserialize, Serialize};

use crate::Shared;

/// Under this key the metadata of a message names the skill that is asked for.
const SKILL: &str = "skillId";

/// Whom a router may choose, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouterSettings {
    /// The agents that may be chosen, by name; nobody else ever is.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub agents: Vec<String>,
    /// Tried in order, after the skill that a message names.
    pub rules: Vec<Route>,
    /// Who is chosen if nothing fits; if left out, the task is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

/// One rule: all that it says must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Route {
    /// The skill that the message names in `metadata.skillId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// What the text begins with, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
    /// What is somewhere in the text, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Who is chosen then.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub to: String,
}

/// An agent that can be chosen.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// The agent.
    pub agent: Shared,
    /// What it can do.
    pub skills: Vec<AgentSkill>,
}

/// Passes every task on to another agent, which works it as its own: questions, cancels and results are the caller's.
///
/// Who that is follows from the first message of the task, so that its answers reach the same one: the skill that it
/// names, else the first rule that fits, else the one for everything else. What skills say of themselves is never
/// read.
///
/// ```
/// use attache_agents::{Choice, Echo, Router, RouterSettings, Shared};
/// let echo = Choice { name: "echo".to_owned(), agent: Shared::new(Echo), skills: Vec::new() };
/// let settings = RouterSettings { agents: vec!["echo".to_owned()], otherwise: Some("echo".to_owned()), ..Default::default() };
/// let router = Router::new(settings, [echo])?;
/// # Ok::<(), attache_agents::BadRouter>(())
/// ```
#[derive(Debug)]
pub struct Router {
    settings: RouterSettings,
    choices: Vec<Choice>,
}

/// Settings that no router can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRouter {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl Router {
    /// A router among those of `agents` that its settings allow.
    ///
    /// # Errors
    /// An agent that is allowed is not there, or a rule names one that is not allowed.
    pub fn new(
        settings: RouterSettings,
        agents: impl IntoIterator<Item = Choice>,
    ) -> Result<Self, BadRouter> {
        let bad = |key, why: String| Err(BadRouter { key, why });
        let allowed = |choice: &Choice| settings.agents.contains(&choice.name);
        let choices: Vec<_> = agents.into_iter().filter(allowed).collect();
        let there = |name: &String| choices.iter().any(|choice| choice.name == *name);
        if settings.agents.is_empty() {
            return bad("agents", "must name at least one agent".to_owned());
        }
        if let Some(name) = settings.agents.iter().find(|name| !there(name)) {
            return bad("agents", format!("there is no agent `{name}` to choose"));
        }
        let named = settings.rules.iter().map(|rule| ("rules", &rule.to));
        let named = named.chain(settings.otherwise.iter().map(|name| ("otherwise", name)));
        if let Some((key, name)) = named.into_iter().find(|(_, name)| !there(name)) {
            return bad(key, format!("`{name}` is not among the agents that may be chosen"));
        }
        if settings.rules.iter().any(Route::is_empty) {
            return bad("rules", "a rule has at least one of skill, begins and contains".to_owned());
        }
        Ok(Self { settings, choices })
    }

    /// The skills of all that may be chosen.
    pub fn skills(&self) -> impl Iterator<Item = &AgentSkill> {
        self.choices.iter().flat_map(|choice| &choice.skills)
    }

    fn choose(&self, message: &Message) -> Option<&Choice> {
        let skill = message.metadata.as_ref().and_then(|metadata| metadata.get(SKILL)?.read::<String>().ok());
        let text = message.text().trim_start().to_lowercase();
        let has = |choice: &&Choice, skill: &str| choice.skills.iter().any(|own| own.id == skill);
        let rule = self.settings.rules.iter().find(|rule| rule.fits(skill.as_deref(), &text));
        // A rule about a skill knows better than the list of skills; one about the text does not.
        let named =
            || self.choices.iter().find(|choice| skill.as_deref().is_some_and(|skill| has(choice, skill)));
        match rule {
            Some(rule) if rule.skill.is_some() => self.named(&rule.to),
            Some(rule) => named().or_else(|| self.named(&rule.to)),
            None => named().or_else(|| self.named(self.settings.otherwise.as_ref()?)),
        }
    }

    fn named(&self, name: &str) -> Option<&Choice> {
        self.choices.iter().find(|choice| choice.name == name)
    }
}

impl Route {
    fn is_empty(&self) -> bool {
        self.skill.is_none() && self.begins.is_none() && self.contains.is_none()
    }

    fn fits(&self, skill: Option<&str>, text: &str) -> bool {
        self.skill.as_deref().is_none_or(|wanted| skill == Some(wanted))
            && self.begins.as_ref().is_none_or(|wanted| text.starts_with(&wanted.to_lowercase()))
            && self.contains.as_ref().is_none_or(|wanted| text.contains(&wanted.to_lowercase()))
    }
}

impl Agent for Router {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        match self.choose(first(turn.task()).unwrap_or_else(|| turn.message())) {
            Some(choice) => choice.agent.run(turn).await,
            None => {
                let skills = self.skills().map(|skill| skill.id.as_str()).collect::<Vec<_>>().join(", ");
                let why = format!("nobody here takes this; name a skill in metadata.{SKILL}: {skills}");
                Ok(Outcome::rejected(why))
            }
        }
    }

    async fn reply(&self, message: &Message, call: &Call) -> Option<Message> {
        self.choose(message)?.agent.reply(message, call).await
    }

    async fn canceled(&self, task: &Task) {
        if let Some(choice) = first(task).and_then(|first| self.choose(first)) {
            choice.agent.canceled(task).await;
        }
    }

    fn durable_start(&self) -> bool {
        self.choices.iter().any(|choice| choice.agent.durable_start())
    }
}

/// The message that a task began with: it says who works on it.
fn first(task: &Task) -> Option<&Message> {
    task.history.iter().find(|message| message.role == Role::User).map(|first| &**first)
}

impl fmt::Display for BadRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadRouter {}
