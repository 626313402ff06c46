//! Agent that routes every task to another agent: by skill, by rule, or by the choice of a model.
//!
//! `model_selection` asks the model.

mod model_selection;

use std::fmt;

use attache::model::{AgentSkill, Call, Json, Message, Object, Role, Task};
use attache::{Agent, Failure, Outcome, Turn};
use serde::{Deserialize, Serialize};

use crate::AnyAgent;
use crate::chat_model::{ChatModel, ModelSettings};
use crate::cost::{Cost, ROUTING_COST_KEY, USAGE_KEY};

/// Metadata key of a message that names the requested skill.
pub(crate) const SKILL_KEY: &str = "skillId";
/// Metadata key of a task that names the agent chosen by the model. Callers cannot set keys that begin with `attache.`.
const ROUTE_KEY: &str = "attache.route";

/// Settings of the router.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouterSettings {
    /// Names of the agents that tasks may be routed to.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub agents: Vec<String>,
    /// Routing rules, in order. A skill named by the message takes precedence over rules about the text.
    pub rules: Vec<RoutingRule>,
    /// Model that chooses an agent if the message names no skill and no rule matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSettings>,
    /// Agent for all other tasks. Default: they are rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

/// Routing rule. All conditions must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoutingRule {
    /// Skill that the message names in `metadata.skillId`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// Beginning of the text, case-insensitive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
    /// Part of the text, case-insensitive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// Agent that handles the task.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub to: String,
}

/// Agent that a router may choose.
#[derive(Debug, Clone)]
pub struct RouteTarget {
    /// Name of the agent.
    pub name: String,
    /// The agent.
    pub agent: AnyAgent,
    /// Skills of the agent.
    pub skills: Vec<AgentSkill>,
}

/// Agent that routes every task to one of several agents. That agent handles the task as its own.
///
/// The first message of a task decides, so all later messages reach the same agent. The router tries the skill that the
/// message names, the rules in order, the model, and the default agent. Skill descriptions are given to the model as
/// untrusted data, and its choice counts only if the settings allow that agent.
///
/// ```
/// use attache_agents::{AnyAgent, Echo, RouteTarget, Router, RouterSettings};
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

/// Error for invalid settings of a [`Router`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterSettingsError {
    /// Invalid key.
    pub key: &'static str,
    reason: String,
}

impl Router {
    /// Creates a router to those of `agents` that the settings name.
    ///
    /// # Errors
    /// An agent of the settings does not exist, a rule names another agent, or the model settings are invalid.
    pub fn new(
        settings: RouterSettings,
        agents: impl IntoIterator<Item = RouteTarget>,
    ) -> Result<Self, RouterSettingsError> {
        let targets: Vec<_> = agents
            .into_iter()
            .filter(|target| settings.agents.contains(&target.name))
            .collect();
        check_names(&settings, &targets)?;
        let model = settings.model.clone().map(ChatModel::new).transpose();
        let model = model.map_err(|error| RouterSettingsError {
            key: "model",
            reason: error.0,
        })?;
        Ok(Self {
            settings,
            targets,
            model,
        })
    }

    /// Returns the skills of all agents that may be chosen.
    pub fn skills(&self) -> impl Iterator<Item = &AgentSkill> {
        self.targets.iter().flat_map(|target| &target.skills)
    }

    /// Returns the agent that the named skill or a rule selects.
    ///
    /// A rule about the skill takes precedence over the skill lists, which take precedence over rules about the text.
    fn match_rules(&self, message: &Message) -> Option<&RouteTarget> {
        let skill = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(SKILL_KEY)?.read::<String>().ok());
        let text = message.text().trim_start().to_lowercase();
        let rule = self
            .settings
            .rules
            .iter()
            .find(|rule| rule.matches(skill.as_deref(), &text));
        let by_skill = || {
            let skill = skill.as_deref()?;
            let mut targets = self.targets.iter();
            targets.find(|target| target.skills.iter().any(|own| own.id == skill))
        };
        match rule {
            Some(rule) if rule.skill.is_some() => self.find_target(&rule.to),
            Some(rule) => by_skill().or_else(|| self.find_target(&rule.to)),
            None => by_skill(),
        }
    }

    /// Returns the agent of a task, if it is known without calling the model.
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

    /// Returns the agent for a turn, and the cost of choosing it.
    ///
    /// A choice of the model is stored in the task, so that later messages reach the same agent.
    ///
    /// # Errors
    /// The model failed and there is no default agent. The error is the outcome of the turn.
    async fn select(&self, turn: &Turn) -> Result<Selection<'_>, Outcome> {
        let recorded = self.recorded_target(turn.task());
        let (Some(model), None) = (&self.model, recorded) else {
            return Ok(Selection {
                target: recorded.or_else(|| self.default_target()),
                cost: Cost::default(),
            });
        };
        let first = first_message(turn.task()).unwrap_or_else(|| turn.message());
        let selected = model_selection::select(model, &self.targets, first, turn).await;
        let selection = match selected {
            Ok(selection) => Selection {
                target: selection.target.or_else(|| self.default_target()),
                ..selection
            },
            Err(error) => {
                tracing::warn!(task = %turn.task_id(), cause = error.cause, "{}", error.message);
                let Some(target) = self.default_target() else {
                    return Err(Outcome::failed(error.message));
                };
                Selection {
                    target: Some(target),
                    cost: Cost::default(),
                }
            }
        };
        turn.add_metadata(selection.to_metadata()).await;
        Ok(selection)
    }

    fn find_target(&self, name: &str) -> Option<&RouteTarget> {
        self.targets.iter().find(|target| target.name == name)
    }
}

/// Agent for a turn, and the cost of choosing it.
struct Selection<'a> {
    target: Option<&'a RouteTarget>,
    cost: Cost,
}

impl Selection<'_> {
    fn to_metadata(&self) -> Object {
        let mut metadata = Object::new();
        if let Some(target) = self.target {
            metadata.insert(ROUTE_KEY, target.name.as_str());
        }
        if self.cost != Cost::default() {
            let cost = Json::from_serialize(&self.cost).unwrap_or_default();
            metadata.insert(ROUTING_COST_KEY, cost.clone());
            metadata.insert(USAGE_KEY, cost);
        }
        metadata
    }
}

/// Checks that all names in the settings are those of targets.
fn check_names(
    settings: &RouterSettings,
    targets: &[RouteTarget],
) -> Result<(), RouterSettingsError> {
    let invalid = |key, reason| Err(RouterSettingsError { key, reason });
    let exists = |name: &String| targets.iter().any(|target| target.name == *name);
    if settings.agents.is_empty() {
        return invalid("agents", "must name at least one agent".to_owned());
    }
    if let Some(name) = settings.agents.iter().find(|name| !exists(name)) {
        return invalid("agents", format!("there is no agent `{name}`"));
    }
    let rules = settings.rules.iter().map(|rule| ("rules", &rule.to));
    let default = settings.otherwise.iter().map(|name| ("otherwise", name));
    if let Some((key, name)) = rules.chain(default).find(|(_, name)| !exists(name)) {
        return invalid(key, format!("`{name}` is not listed in `agents`"));
    }
    if settings.rules.iter().any(RoutingRule::is_empty) {
        let reason = "a rule must have at least one of skill, begins and contains";
        return invalid("rules", reason.to_owned());
    }
    Ok(())
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
        let selection = match Box::pin(self.select(&turn)).await {
            Ok(selection) => selection,
            Err(outcome) => return Ok(outcome),
        };
        let Some(target) = selection.target else {
            let skills: Vec<_> = self.skills().map(|skill| skill.id.as_str()).collect();
            return Ok(Outcome::rejected(format!(
                "no agent takes this message; name a skill in metadata.{SKILL_KEY}: {}",
                skills.join(", ")
            )));
        };
        selection
            .cost
            .run_after_routing(target.agent.run(turn))
            .await
    }

    async fn reply(&self, message: &Message, call: &Call) -> Option<Message> {
        // If the model has to choose, the message needs a task.
        let default = || self.default_target().filter(|_| self.model.is_none());
        self.match_rules(message)
            .or_else(default)?
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

/// Returns the first message of a task, which decides the routing.
fn first_message(task: &Task) -> Option<&Message> {
    task.history
        .iter()
        .find(|message| message.role == Role::User)
        .map(|first| &**first)
}

impl fmt::Display for RouterSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for RouterSettingsError {}
