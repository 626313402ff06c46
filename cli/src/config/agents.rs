//! `[agents.<name>]`: what is said of every agent, and what of each kind.

mod kind;

use std::collections::BTreeMap;

use attache::jws::Signer;
use attache::model::{AgentProvider, AgentSkill};
use attache::{AgentCard, AgentSettings, HostedAgent};
use attache_agents::{AnyAgent, McpAgent, McpSettingsError, RouteTarget};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::AgentAuthSection;
use super::error::{ConfigError, unknown_name};
use super::tree::ConfigTree;
pub(crate) use kind::AgentKind;

/// An agent as the file has it.
#[derive(Debug)]
pub(crate) struct AgentConfig {
    /// Its name in this process: `/agents/{name}`.
    pub(crate) name: String,
    pub(crate) card: CardSection,
    pub(crate) settings: AgentSettings,
    pub(crate) auth: AgentAuthSection,
    pub(crate) kind: AgentKind,
}

/// What every agent says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CardSection {
    /// Its name on the card; the name of its section if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// What it does, for people and for models that choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Who provides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<ProviderSection>,
    /// Where to read more.
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<String>,
    /// Its picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<String>,
    /// Media types that it reads; those of its type if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    input_modes: Vec<String>,
    /// Media types that it writes; those of its type if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_modes: Vec<String>,
    /// What it can do; one skill of its own name if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skills: Vec<SkillSection>,
    /// What its tasks are kept under; the name of its section if left out. Say the old name when a section is renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Those whose tasks are kept apart from each other's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
}

/// Who provides an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProviderSection {
    /// Their name.
    organization: String,
    /// Their page.
    url: String,
}

/// One thing that an agent can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillSection {
    /// Unique within the agent.
    id: String,
    /// For people; the id if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// For people and for models that choose.
    description: String,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    /// What one might ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    examples: Vec<String>,
}

/// Takes all agents, in the order of the file.
pub(super) fn take(tree: &mut ConfigTree) -> Result<Vec<AgentConfig>, ConfigError> {
    let names = tree.table_names("agents")?;
    names.into_iter().map(|name| take_one(tree, name)).collect()
}

fn take_one(tree: &mut ConfigTree, name: String) -> Result<AgentConfig, ConfigError> {
    let section = format!("agents.{name}");
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(good) {
        return Err(tree.error_at(
            &section,
            "the name of an agent has letters, digits, - and _",
        ));
    }
    let Some(kind) = tree.take_text(&section, "type")? else {
        let why = format!(
            "has no type; write type = \"command\", or another of {}",
            AgentKind::NAMES.join(", ")
        );
        return Err(tree.error_at(&section, why));
    };
    let card = tree.take(|_| section.clone())?;
    let mut settings: AgentSettings = tree.take(|_| format!("{section}.limits"))?;
    let auth = tree.take(|_| format!("{section}.auth"))?;
    let kind = match AgentKind::take(&kind, tree, &section)? {
        Some(kind) => kind,
        None => {
            let why = unknown_name("type of agent", &kind, AgentKind::NAMES);
            return Err(tree.error_at(&format!("{section}.type"), why));
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

/// An agent that is made, with the skills that it has by nature.
pub(crate) type BuiltAgent = (AnyAgent, Vec<AgentSkill>);

/// Makes those agents whose skills others know, and asks them; gives too who did not say, and why. Where a rule says who may use
/// a skill, messages have to name it.
///
/// # Errors
/// The key at fault, and why.
pub(crate) async fn ask(
    agents: &[AgentConfig],
    has_skill_rules: impl Fn(&AgentConfig) -> bool,
) -> Result<(BTreeMap<String, BuiltAgent>, Vec<String>), (String, String)> {
    let (mut known, mut silent) = (BTreeMap::new(), Vec::new());
    for config in agents {
        let AgentKind::Mcp(settings) = &config.kind else {
            continue;
        };
        let bad = |bad: McpSettingsError| {
            (
                format!("agents.{}.{}", config.name, bad.key),
                bad.to_string(),
            )
        };
        let mut settings = (**settings).clone();
        settings.named_skills |= has_skill_rules(config);
        let agent = McpAgent::new(settings).map_err(bad)?;
        // What the file says of them is not asked for.
        let skills = match config.card.skills.is_empty() {
            true => agent.skills().await,
            false => Ok(Vec::new()),
        };
        let skills = skills.unwrap_or_else(|why| {
            silent.push(format!(
                "the card of `{}` does not name its skills: {why}",
                config.name
            ));
            Vec::new()
        });
        known.insert(config.name.clone(), (AnyAgent::new(agent), skills));
    }
    Ok((known, silent))
}

/// Makes all agents that are not made yet, in the order of the file; `signer` signs for whom they call others.
///
/// # Errors
/// The key at fault, and why.
pub(crate) fn build(
    agents: &[AgentConfig],
    mut known: BTreeMap<String, BuiltAgent>,
    signer: Option<&Signer>,
) -> Result<Vec<HostedAgent>, (String, String)> {
    let mut made: Vec<RouteTarget> = Vec::new();
    let mut cards = BTreeMap::new();
    for needy in [false, true] {
        let mut now = Vec::new();
        for config in agents
            .iter()
            .filter(|config| config.kind.needs_others() == needy)
        {
            let (card, agent) = config.make(&made, known.remove(&config.name), signer)?;
            now.push(RouteTarget {
                name: config.name.clone(),
                agent,
                skills: card.skills.clone(),
            });
            cards.insert(&config.name, card);
        }
        made.extend(now);
    }
    let served = agents.iter().filter_map(|config| {
        let agent = made
            .iter()
            .find(|choice| choice.name == config.name)?
            .agent
            .clone();
        let tenants = config.card.tenants.iter().map(String::as_str);
        let served =
            HostedAgent::new(&config.name, cards.remove(&config.name)?, agent).tenants(tenants);
        let served = served.namespace(config.card.namespace.as_ref().unwrap_or(&config.name));
        Some(served.settings(config.settings.clone()))
    });
    Ok(served.collect())
}

impl AgentConfig {
    fn make(
        &self,
        others: &[RouteTarget],
        known: Option<BuiltAgent>,
        signer: Option<&Signer>,
    ) -> Result<(AgentCard, AnyAgent), (String, String)> {
        let made = known.map_or_else(|| self.kind.build(others, signer), Ok);
        let (agent, skills) =
            made.map_err(|(key, why)| (format!("agents.{}.{key}", self.name), why))?;
        Ok((self.card.card(&self.name, &self.kind, skills), agent))
    }
}

impl CardSection {
    fn card(&self, name: &str, kind: &AgentKind, own: Vec<AgentSkill>) -> AgentCard {
        let title = self.name.as_deref().unwrap_or(name);
        let does = self.description.as_deref().unwrap_or(kind.does());
        let version = self.version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
        let mut card = AgentCard::new(title, does).version(version);
        card.provider = self.provider.as_ref().map(|provider| AgentProvider {
            organization: provider.organization.clone(),
            url: provider.url.clone(),
        });
        card.documentation_url.clone_from(&self.documentation_url);
        card.icon_url.clone_from(&self.icon_url);
        let or =
            |said: &Vec<String>, own: Vec<String>| if said.is_empty() { own } else { said.clone() };
        let (reads, writes) = kind.modes();
        card.default_input_modes = or(&self.input_modes, reads);
        card.default_output_modes = or(&self.output_modes, writes);
        let said: Vec<_> = self.skills.iter().map(SkillSection::skill).collect();
        let skills = if said.is_empty() { own } else { said };
        let skills = match skills.is_empty() {
            true => vec![AgentSkill::new(name, title, does).tag(kind.name())],
            false => skills,
        };
        skills.into_iter().fold(card, AgentCard::skill)
    }
}

impl SkillSection {
    fn skill(&self) -> AgentSkill {
        let name = self.name.as_ref().unwrap_or(&self.id);
        let skill = AgentSkill::new(&self.id, name, &self.description);
        let skill = self.tags.iter().fold(skill, AgentSkill::tag);
        self.examples.iter().fold(skill, AgentSkill::example)
    }
}
