//! `[agents.<name>]`: the card and settings of every agent, and the settings of its type.

mod kind;

use std::collections::BTreeMap;

use attache::jws::Signer;
use attache::model::{AgentProvider, AgentSkill};
use attache::{Agent, AgentCard, AgentSettings, HostedAgent};
use attache_agents::{AnyAgent, McpAgent, RouteTarget, Script};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::AgentAuthSection;
use super::error::{ConfigError, KeyError, unknown_name};
use super::renamed::renamed_value;
use super::tree::ConfigTree;
pub(crate) use kind::AgentKind;

/// Configuration of an agent.
#[derive(Debug)]
pub(crate) struct AgentConfig {
    /// Name in this process, and in its path `/agents/{name}`.
    pub(crate) name: String,
    pub(crate) card: CardSection,
    pub(crate) settings: AgentSettings,
    pub(crate) auth: AgentAuthSection,
    pub(crate) kind: AgentKind,
}

/// Card of an agent, and settings of every agent type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CardSection {
    /// Name on the card. Default: the name of the section.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Description, for people and for models that select an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Version of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Provider of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<ProviderSection>,
    /// URL of the documentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<String>,
    /// URL of an icon.
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<String>,
    /// Accepted media types. Default: those of the agent type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    input_modes: Vec<String>,
    /// Produced media types. Default: those of the agent type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_modes: Vec<String>,
    /// Skills. Default: those of the agent type, or one skill with the name of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skills: Vec<SkillSection>,
    /// Namespace of its tasks in the store. Default: the name of the section. Set the old name when a section is renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Tenants, whose tasks are isolated from each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
}

/// Provider of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProviderSection {
    /// Name of the organization.
    organization: String,
    /// URL of the organization.
    url: String,
}

/// Skill of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillSection {
    /// Id, unique within the agent.
    id: String,
    /// Name for people. Default: the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Description, for people and for models that select a skill.
    description: String,
    /// Search keywords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    /// Example messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    examples: Vec<String>,
}

/// Takes all agents out of the tree, in the order of the file.
pub(super) fn take(tree: &mut ConfigTree) -> Result<Vec<AgentConfig>, ConfigError> {
    let names = tree.table_names("agents")?;
    names.into_iter().map(|name| take_one(tree, name)).collect()
}

fn take_one(tree: &mut ConfigTree, name: String) -> Result<AgentConfig, ConfigError> {
    let section = format!("agents.{name}");
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_allowed) {
        return Err(tree.error_at(
            &section,
            "the name of an agent may contain letters, digits, - and _",
        ));
    }
    let Some(kind) = tree.take_text(&section, "type")? else {
        let names = AgentKind::NAMES.join(", ");
        return Err(tree.error_at(
            &section,
            format!("has no type; add type = \"command\", or another of {names}"),
        ));
    };
    let card = tree.take(|_| section.clone())?;
    let mut settings: AgentSettings = tree.take(|_| format!("{section}.limits"))?;
    let auth = tree.take(|_| format!("{section}.auth"))?;
    let kind = match AgentKind::take(&kind, tree, &section)? {
        Some(kind) => kind,
        None => {
            let key = format!("{section}.type");
            let message = match renamed_value(&key, &kind) {
                Some(new) => format!("unknown value `{kind}`: renamed to `{new}`"),
                None => unknown_name("type of agent", &kind, AgentKind::NAMES),
            };
            return Err(tree.error_at(&key, message));
        }
    };
    settings.on_restart = settings.on_restart.or_else(|| kind.on_restart());
    Ok(AgentConfig {
        name,
        card,
        settings,
        auth,
        kind,
    })
}

/// A built agent, with the skills that its type determines.
pub(crate) struct BuiltAgent {
    agent: AnyAgent,
    skills: Vec<AgentSkill>,
}

impl BuiltAgent {
    fn new(agent: impl Agent) -> Self {
        Self {
            agent: AnyAgent::new(agent),
            skills: Vec::new(),
        }
    }

    fn from_script(script: Script) -> Self {
        let skills = script.skills().collect();
        Self {
            skills,
            ..Self::new(script)
        }
    }
}

/// Builds the MCP agents, and queries their servers for skills. Also returns warnings about servers that did not answer. If
/// a rule is about skills, messages must name their skill.
///
/// # Errors
/// A setting is invalid.
pub(crate) async fn query_skills(
    agents: &[AgentConfig],
    has_skill_rules: impl Fn(&AgentConfig) -> bool,
) -> Result<(BTreeMap<String, BuiltAgent>, Vec<String>), KeyError> {
    let mut built = BTreeMap::new();
    let mut warnings = Vec::new();
    for config in agents {
        let AgentKind::Mcp(settings) = &config.kind else {
            continue;
        };
        let mut settings = (**settings).clone();
        settings.named_skills |= has_skill_rules(config);
        let agent = McpAgent::new(settings)
            .map_err(|error| KeyError::new(error.key, &error).in_section(&config.section()))?;
        // Skills of the file replace those of the server.
        let skills = if config.card.skills.is_empty() {
            agent.skills().await
        } else {
            Ok(Vec::new())
        };
        let skills = skills.unwrap_or_else(|error| {
            warnings.push(format!(
                "the card of `{}` has no skills: {error}",
                config.name
            ));
            Vec::new()
        });
        let agent = BuiltAgent {
            skills,
            ..BuiltAgent::new(agent)
        };
        built.insert(config.name.clone(), agent);
    }
    Ok((built, warnings))
}

/// Builds the remaining agents, in the order of the file; `signer` signs delegation claims of their calls.
///
/// # Errors
/// A setting is invalid.
pub(crate) fn build(
    agents: &[AgentConfig],
    mut built: BTreeMap<String, BuiltAgent>,
    signer: Option<&Signer>,
) -> Result<Vec<HostedAgent>, KeyError> {
    let mut targets: Vec<RouteTarget> = Vec::new();
    let mut cards = BTreeMap::new();
    // Routers need the other agents, so they are built last.
    for needs_others in [false, true] {
        let mut batch = Vec::new();
        for config in agents
            .iter()
            .filter(|config| config.kind.needs_others() == needs_others)
        {
            let built = match built.remove(&config.name) {
                Some(built) => built,
                None => config
                    .kind
                    .build(&targets, signer)
                    .map_err(|error| error.in_section(&config.section()))?,
            };
            let card = config.card.card(&config.name, &config.kind, built.skills);
            batch.push(RouteTarget {
                name: config.name.clone(),
                agent: built.agent,
                skills: card.skills.clone(),
            });
            cards.insert(&config.name, card);
        }
        targets.extend(batch);
    }
    let hosted = agents.iter().filter_map(|config| {
        let target = targets.iter().find(|target| target.name == config.name)?;
        let card = cards.remove(&config.name)?;
        let namespace = config.card.namespace.as_ref().unwrap_or(&config.name);
        let hosted = HostedAgent::new(&config.name, card, target.agent.clone())
            .tenants(config.card.tenants.iter().map(String::as_str))
            .namespace(namespace)
            .settings(config.settings.clone());
        Some(hosted)
    });
    Ok(hosted.collect())
}

impl AgentConfig {
    /// The section of the agent.
    fn section(&self) -> String {
        format!("agents.{}", self.name)
    }
}

impl CardSection {
    /// Builds the card; `type_skills` are the default skills.
    fn card(&self, name: &str, kind: &AgentKind, type_skills: Vec<AgentSkill>) -> AgentCard {
        let title = self.name.as_deref().unwrap_or(name);
        let description = self
            .description
            .as_deref()
            .unwrap_or(kind.default_description());
        let version = self.version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
        let mut card = AgentCard::new(title, description).version(version);
        card.provider = self.provider.as_ref().map(|provider| AgentProvider {
            organization: provider.organization.clone(),
            url: provider.url.clone(),
        });
        card.documentation_url.clone_from(&self.documentation_url);
        card.icon_url.clone_from(&self.icon_url);
        let (input_modes, output_modes) = kind.default_modes();
        card.default_input_modes = or_default(self.input_modes.clone(), input_modes);
        card.default_output_modes = or_default(self.output_modes.clone(), output_modes);
        let skills: Vec<_> = self.skills.iter().map(SkillSection::skill).collect();
        let skills = or_default(skills, type_skills);
        let own = AgentSkill::new(name, title, description).tag(kind.name());
        or_default(skills, vec![own])
            .into_iter()
            .fold(card, AgentCard::skill)
    }
}

/// The list, or the default if it is empty.
fn or_default<T>(list: Vec<T>, default: Vec<T>) -> Vec<T> {
    if list.is_empty() { default } else { list }
}

impl SkillSection {
    fn skill(&self) -> AgentSkill {
        let name = self.name.as_ref().unwrap_or(&self.id);
        let skill = AgentSkill::new(&self.id, name, &self.description);
        let skill = self.tags.iter().fold(skill, AgentSkill::tag);
        self.examples.iter().fold(skill, AgentSkill::example)
    }
}
