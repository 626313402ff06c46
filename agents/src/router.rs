//! An agent that passes every task on to another: by the skill that is asked for, by a rule, or by what a model thinks.

mod chooser;

use std::fmt;

use attache::model::{AgentSkill, Call, Json, Message, Object, Role, Task};
use attache::{Agent, Failure, Outcome, Turn};
use serde::{Deserialize, Serialize};

use crate::Shared;
use crate::lineage::{Cost, ROUTED, USAGE};
use crate::model::{Model, ModelSettings};

/// Under this key the metadata of a message names the skill that is asked for.
pub(crate) const SKILL: &str = "skillId";
/// Under this key the metadata of a task has whom a model chose for it. Nobody outside can write names that begin so.
const ROUTE: &str = "attache.route";

/// Whom a router may choose, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouterSettings {
    /// The agents that may be chosen, by name; nobody else ever is.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub agents: Vec<String>,
    /// Tried in order, after the skill that a message names.
    pub rules: Vec<Route>,
    /// A model that chooses among the agents where no skill is named and no rule fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSettings>,
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
/// names, else the first rule that fits, else what a model chooses if there is one, else the one for everything else.
/// What skills say of themselves is read by nobody but the model, as data, and whom it names is chosen only if the
/// settings allow it.
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
    model: Option<Model>,
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
            return bad(
                key,
                format!("`{name}` is not among the agents that may be chosen"),
            );
        }
        if settings.rules.iter().any(Route::is_empty) {
            return bad(
                "rules",
                "a rule has at least one of skill, begins and contains".to_owned(),
            );
        }
        let model = settings.model.clone().map(Model::new).transpose();
        let model = model.map_err(|bad| BadRouter {
            key: "model",
            why: bad.0,
        })?;
        Ok(Self {
            settings,
            choices,
            model,
        })
    }

    /// The skills of all that may be chosen.
    pub fn skills(&self) -> impl Iterator<Item = &AgentSkill> {
        self.choices.iter().flat_map(|choice| &choice.skills)
    }

    /// Whom the skill that a message names, or a rule, chooses.
    fn by_rule(&self, message: &Message) -> Option<&Choice> {
        let skill = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(SKILL)?.read::<String>().ok());
        let text = message.text().trim_start().to_lowercase();
        let has = |choice: &&Choice, skill: &str| choice.skills.iter().any(|own| own.id == skill);
        let rule = self
            .settings
            .rules
            .iter()
            .find(|rule| rule.fits(skill.as_deref(), &text));
        // A rule about a skill knows better than the list of skills; one about the text does not.
        let named = || {
            self.choices
                .iter()
                .find(|choice| skill.as_deref().is_some_and(|skill| has(choice, skill)))
        };
        match rule {
            Some(rule) if rule.skill.is_some() => self.named(&rule.to),
            Some(rule) => named().or_else(|| self.named(&rule.to)),
            None => named(),
        }
    }

    /// Whom a task was given to before, as far as that needs no thinking.
    fn known(&self, task: &Task) -> Option<&Choice> {
        let chosen = task
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(ROUTE)?.read::<String>().ok());
        match chosen.filter(|_| self.model.is_some()) {
            Some(name) => self.named(&name),
            None => first(task).and_then(|first| self.by_rule(first)),
        }
    }

    fn otherwise(&self) -> Option<&Choice> {
        self.named(self.settings.otherwise.as_ref()?)
    }

    /// Who works on a turn, and what it cost to find that out. What a model chose is written down, so that answers reach the
    /// same one.
    async fn choose(&self, turn: &Turn) -> Result<(Option<&Choice>, Cost), Outcome> {
        let (Some(model), None) = (&self.model, self.known(turn.task())) else {
            return Ok((
                self.known(turn.task()).or_else(|| self.otherwise()),
                Cost::default(),
            ));
        };
        let asked = first(turn.task()).unwrap_or_else(|| turn.message());
        let (chosen, cost) = match chooser::choose(model, &self.choices, asked, turn).await {
            Ok((chosen, cost)) => (chosen.or_else(|| self.otherwise()), cost),
            Err(failed) => {
                tracing::warn!(task = %turn.task_id(), cause = failed.cause, "{}", failed.words);
                match self.otherwise() {
                    Some(otherwise) => (Some(otherwise), Cost::default()),
                    None => return Err(Outcome::failed(failed.words)),
                }
            }
        };
        let mut metadata = Object::new();
        if let Some(choice) = chosen {
            metadata.insert(ROUTE, choice.name.as_str());
        }
        if cost != Cost::default() {
            let cost = Json::of(&cost).unwrap_or_default();
            metadata.insert(ROUTED, cost.clone());
            metadata.insert(USAGE, cost);
        }
        turn.metadata(metadata).await;
        Ok((chosen, cost))
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
        self.skill
            .as_deref()
            .is_none_or(|wanted| skill == Some(wanted))
            && self
                .begins
                .as_ref()
                .is_none_or(|wanted| text.starts_with(&wanted.to_lowercase()))
            && self
                .contains
                .as_ref()
                .is_none_or(|wanted| text.contains(&wanted.to_lowercase()))
    }
}

impl Agent for Router {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        match Box::pin(self.choose(&turn)).await {
            Ok((Some(choice), cost)) => cost.then(choice.agent.run(turn)).await,
            Ok((None, _)) => {
                let skills = self
                    .skills()
                    .map(|skill| skill.id.as_str())
                    .collect::<Vec<_>>()
                    .join(", ");
                let why =
                    format!("nobody here takes this; name a skill in metadata.{SKILL}: {skills}");
                Ok(Outcome::rejected(why))
            }
            Err(outcome) => Ok(outcome),
        }
    }

    async fn reply(&self, message: &Message, call: &Call) -> Option<Message> {
        // What needs thinking is a task.
        let otherwise = || self.otherwise().filter(|_| self.model.is_none());
        self.by_rule(message)
            .or_else(otherwise)?
            .agent
            .reply(message, call)
            .await
    }

    async fn canceled(&self, task: &Task) {
        if let Some(choice) = self.known(task).or_else(|| self.otherwise()) {
            choice.agent.canceled(task).await;
        }
    }

    fn durable_start(&self) -> bool {
        self.choices
            .iter()
            .any(|choice| choice.agent.durable_start())
    }
}

/// The message that a task began with: it says who works on it.
fn first(task: &Task) -> Option<&Message> {
    task.history
        .iter()
        .find(|message| message.role == Role::User)
        .map(|first| &**first)
}

impl fmt::Display for BadRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadRouter {}
