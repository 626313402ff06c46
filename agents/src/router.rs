//! An agent that passes every task on to another: by the skill that is asked for, by a rule, or by what a model thinks.

mod model_selection;

use std::fmt;

use attache::model::{AgentSkill, Call, Json, Message, Object, Role, Task};
use attache::{Agent, Failure, Outcome, Turn};
use serde::{Deserialize, Serialize};

use crate::AnyAgent;
use crate::chat_model::{ChatModel, ModelSettings};
use crate::lineage::{Cost, ROUTING_COST_KEY, USAGE_KEY};

/// Under this key the metadata of a message names the skill that is asked for.
pub(crate) const SKILL_KEY: &str = "skillId";
/// Under this key the metadata of a task has whom a model chose for it. Nobody outside can write names that begin so.
const ROUTE_KEY: &str = "attache.route";

/// Whom a router may choose, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouterSettings {
    /// The agents that may be chosen, by name; nobody else ever is.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub agents: Vec<String>,
    /// Tried in order, after the skill that a message names.
    pub rules: Vec<RoutingRule>,
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
pub struct RoutingRule {
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
pub struct RouteTarget {
    /// Its name.
    pub name: String,
    /// The agent.
    pub agent: AnyAgent,
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
/// use attache_agents::{RouteTarget, Echo, Router, RouterSettings, AnyAgent};
/// let echo = RouteTarget { name: "echo".to_owned(), agent: AnyAgent::new(Echo), skills: Vec::new() };
/// let settings = RouterSettings { agents: vec!["echo".to_owned()], otherwise: Some("echo".to_owned()), ..Default::default() };
/// let router = Router::new(settings, [echo])?;
/// # Ok::<(), attache_agents::RouterSettingsError>(())
/// ```
#[derive(Debug)]
pub struct Router {
    settings: RouterSettings,
    targets: Vec<RouteTarget>,
    model: Option<ChatModel>,
}

/// Settings that no router can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterSettingsError {
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
        agents: impl IntoIterator<Item = RouteTarget>,
    ) -> Result<Self, RouterSettingsError> {
        let bad = |key, why: String| Err(RouterSettingsError { key, why });
        let allowed = |target: &RouteTarget| settings.agents.contains(&target.name);
        let targets: Vec<_> = agents.into_iter().filter(allowed).collect();
        let there = |name: &String| targets.iter().any(|target| target.name == *name);
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
        if settings.rules.iter().any(RoutingRule::is_empty) {
            return bad(
                "rules",
                "a rule has at least one of skill, begins and contains".to_owned(),
            );
        }
        let model = settings.model.clone().map(ChatModel::new).transpose();
        let model = model.map_err(|bad| RouterSettingsError {
            key: "model",
            why: bad.0,
        })?;
        Ok(Self {
            settings,
            targets,
            model,
        })
    }

    /// The skills of all that may be chosen.
    pub fn skills(&self) -> impl Iterator<Item = &AgentSkill> {
        self.targets.iter().flat_map(|target| &target.skills)
    }

    /// Whom the skill that a message names, or a rule, chooses.
    fn match_rules(&self, message: &Message) -> Option<&RouteTarget> {
        let skill = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(SKILL_KEY)?.read::<String>().ok());
        let text = message.text().trim_start().to_lowercase();
        let has =
            |target: &&RouteTarget, skill: &str| target.skills.iter().any(|own| own.id == skill);
        let rule = self
            .settings
            .rules
            .iter()
            .find(|rule| rule.matches(skill.as_deref(), &text));
        // A rule about a skill knows better than the list of skills; one about the text does not.
        let named = || {
            self.targets
                .iter()
                .find(|target| skill.as_deref().is_some_and(|skill| has(target, skill)))
        };
        match rule {
            Some(rule) if rule.skill.is_some() => self.find_target(&rule.to),
            Some(rule) => named().or_else(|| self.find_target(&rule.to)),
            None => named(),
        }
    }

    /// Whom a task was given to before, as far as that needs no thinking.
    fn recorded_target(&self, task: &Task) -> Option<&RouteTarget> {
        let chosen = task
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(ROUTE_KEY)?.read::<String>().ok());
        match chosen.filter(|_| self.model.is_some()) {
            Some(name) => self.find_target(&name),
            None => first_message(task).and_then(|first| self.match_rules(first)),
        }
    }

    fn default_target(&self) -> Option<&RouteTarget> {
        self.find_target(self.settings.otherwise.as_ref()?)
    }

    /// Who works on a turn, and what it cost to find that out. What a model chose is written down, so that answers reach the
    /// same one.
    async fn choose(&self, turn: &Turn) -> Result<(Option<&RouteTarget>, Cost), Outcome> {
        let (Some(model), None) = (&self.model, self.recorded_target(turn.task())) else {
            return Ok((
                self.recorded_target(turn.task())
                    .or_else(|| self.default_target()),
                Cost::default(),
            ));
        };
        let asked = first_message(turn.task()).unwrap_or_else(|| turn.message());
        let (chosen, cost) = match model_selection::select(model, &self.targets, asked, turn).await
        {
            Ok((chosen, cost)) => (chosen.or_else(|| self.default_target()), cost),
            Err(failed) => {
                tracing::warn!(task = %turn.task_id(), cause = failed.cause, "{}", failed.message);
                match self.default_target() {
                    Some(otherwise) => (Some(otherwise), Cost::default()),
                    None => return Err(Outcome::failed(failed.message)),
                }
            }
        };
        let mut metadata = Object::new();
        if let Some(target) = chosen {
            metadata.insert(ROUTE_KEY, target.name.as_str());
        }
        if cost != Cost::default() {
            let cost = Json::from_serialize(&cost).unwrap_or_default();
            metadata.insert(ROUTING_COST_KEY, cost.clone());
            metadata.insert(USAGE_KEY, cost);
        }
        turn.add_metadata(metadata).await;
        Ok((chosen, cost))
    }

    fn find_target(&self, name: &str) -> Option<&RouteTarget> {
        self.targets.iter().find(|target| target.name == name)
    }
}

impl RoutingRule {
    fn is_empty(&self) -> bool {
        self.skill.is_none() && self.begins.is_none() && self.contains.is_none()
    }

    fn matches(&self, skill: Option<&str>, text: &str) -> bool {
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
            Ok((Some(target), cost)) => cost.run_after_routing(target.agent.run(turn)).await,
            Ok((None, _)) => {
                let skills = self
                    .skills()
                    .map(|skill| skill.id.as_str())
                    .collect::<Vec<_>>()
                    .join(", ");
                let why = format!(
                    "nobody here takes this; name a skill in metadata.{SKILL_KEY}: {skills}"
                );
                Ok(Outcome::rejected(why))
            }
            Err(outcome) => Ok(outcome),
        }
    }

    async fn reply(&self, message: &Message, call: &Call) -> Option<Message> {
        // What needs thinking is a task.
        let otherwise = || self.default_target().filter(|_| self.model.is_none());
        self.match_rules(message)
            .or_else(otherwise)?
            .agent
            .reply(message, call)
            .await
    }

    async fn on_canceled(&self, task: &Task) {
        if let Some(target) = self.recorded_target(task).or_else(|| self.default_target()) {
            target.agent.on_canceled(task).await;
        }
    }

    fn needs_durable_start(&self) -> bool {
        self.targets
            .iter()
            .any(|target| target.agent.needs_durable_start())
    }
}

/// The message that a task began with: it says who works on it.
fn first_message(task: &Task) -> Option<&Message> {
    task.history
        .iter()
        .find(|message| message.role == Role::User)
        .map(|first| &**first)
}

impl fmt::Display for RouterSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for RouterSettingsError {}
