//! `[agents.<name>]`: the card and settings of every agent, and the settings of its type.

mod card;
mod kind;

use std::collections::BTreeMap;
use std::path::Path;

use attache::jws::Signer;
use attache::model::AgentSkill;
use attache::{Agent, AgentSettings, HostedAgent};
#[cfg(unix)]
use attache_agents::WorkerSettings;
use attache_agents::{
    AnyAgent, LlmSettings, McpAgent, McpSettings, RouteTarget, Script, Supervisor,
};

use super::auth::AgentAuthSection;
use super::error::{ConfigError, KeyError, unknown_name};
use super::renamed::renamed_value;
use super::tree::ConfigTree;
use card::CardDefaults;
pub(crate) use card::CardSection;
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
    let card: CardSection = tree.take(|_| section.clone())?;
    card.check()
        .map_err(|error| tree.error_at(&format!("{section}.{}", error.key), error.message))?;
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

/// Resources of the server that agents use.
#[derive(Clone, Copy)]
pub(crate) struct AgentResources<'a> {
    /// Signs delegation claims of their calls.
    pub(crate) signer: Option<&'a Signer>,
    /// Supervises their processes.
    pub(crate) supervisor: Option<&'a Supervisor>,
    /// Whether an agent whose worker does not start is an error, instead of a warning.
    pub(crate) requires_workers: bool,
}

/// A built agent, with the fields of the card that it determines.
pub(crate) struct BuiltAgent {
    agent: AnyAgent,
    card: CardDefaults,
}

impl BuiltAgent {
    fn new(agent: impl Agent) -> Self {
        Self {
            agent: AnyAgent::new(agent),
            card: CardDefaults::default(),
        }
    }

    fn with_skills(agent: impl Agent, skills: Vec<AgentSkill>) -> Self {
        let mut built = Self::new(agent);
        built.card.skills = skills;
        built
    }

    fn from_script(script: Script) -> Self {
        let skills = script.skills().collect();
        Self::with_skills(script, skills)
    }
}

/// Builds the agents whose skills are the tools of MCP servers, and queries the servers. Also returns warnings about servers
/// that did not answer. If a rule is about skills, messages to MCP agents must name their skill.
///
/// # Errors
/// A setting is invalid.
pub(crate) async fn query_skills(
    agents: &[AgentConfig],
    resources: AgentResources<'_>,
    has_skill_rules: impl Fn(&AgentConfig) -> bool,
) -> Result<(BTreeMap<String, BuiltAgent>, Vec<String>), KeyError> {
    let mut built = BTreeMap::new();
    let mut warnings = Vec::new();
    for config in agents {
        let queried = match &config.kind {
            AgentKind::Mcp(settings) => {
                let mut settings = (**settings).clone();
                settings.named_skills |= has_skill_rules(config);
                Some(query_mcp(config, settings, resources).await)
            }
            AgentKind::Llm(settings) if lists_mcp_tools(config, settings) => {
                Some(query_llm(settings, resources).await)
            }
            #[cfg(unix)]
            AgentKind::Worker(settings) => {
                let (agent, started) = start_worker(settings, resources)
                    .await
                    .map_err(|error| error.in_section(&config.section()))?;
                if let Err(reason) = started {
                    let error = format!("no worker starts: {reason}");
                    if resources.requires_workers {
                        let error = KeyError::new("file", error);
                        return Err(error.in_section(&config.section()));
                    }
                    warnings.push(format!("`{}`: {error}", config.name));
                }
                built.insert(config.name.clone(), agent);
                None
            }
            #[cfg(unix)]
            AgentKind::Command(_) => None,
            AgentKind::Llm(_)
            | AgentKind::Echo(_)
            | AgentKind::Http(_)
            | AgentKind::Demo(_)
            | AgentKind::Remote(_)
            | AgentKind::Router(_)
            | AgentKind::Script(_) => None,
        };
        let Some(queried) = queried else {
            continue;
        };
        let (mut agent, skills) = queried.map_err(|error| error.in_section(&config.section()))?;
        match skills {
            Ok(skills) => agent.card.skills = skills,
            Err(error) => warnings.push(format!(
                "the card of `{}` lacks the skills of an MCP server: {error}",
                config.name
            )),
        }
        built.insert(config.name.clone(), agent);
    }
    Ok((built, warnings))
}

/// An agent with the skills that are known without its MCP servers, and those with them or the reason why there are none.
type QueriedAgent = (BuiltAgent, Result<Vec<AgentSkill>, String>);

async fn query_mcp(
    config: &AgentConfig,
    mut settings: McpSettings,
    resources: AgentResources<'_>,
) -> Result<QueriedAgent, KeyError> {
    settings.server.supervisor = resources.supervisor.cloned();
    let agent = McpAgent::new(settings).map_err(|error| KeyError::new(error.key, &error))?;
    // Skills of the file replace those of the server.
    let skills = if config.card.has_skills() {
        Ok(Vec::new())
    } else {
        agent.skills().await
    };
    Ok((BuiltAgent::new(agent), skills))
}

async fn query_llm(
    settings: &LlmSettings,
    resources: AgentResources<'_>,
) -> Result<QueriedAgent, KeyError> {
    let llm = kind::build_llm(settings, resources)?;
    let configured = llm.configured_skills();
    let skills = llm.skills().await;
    Ok((BuiltAgent::with_skills(llm, configured), skills))
}

/// Starts the processes of a worker agent. Also returns the reason why none runs.
#[cfg(unix)]
async fn start_worker(
    settings: &WorkerSettings,
    resources: AgentResources<'_>,
) -> Result<(BuiltAgent, Result<(), String>), KeyError> {
    let worker = kind::build_worker(settings, resources)?;
    let card = worker.start().await;
    let mut agent = BuiltAgent::new(worker);
    let started = card.map(|card| {
        agent.card = CardDefaults {
            name: card.name,
            description: card.description,
            skills: card.skills,
        };
    });
    Ok((agent, started))
}

/// Whether the skills of a model are the tools of MCP servers too.
fn lists_mcp_tools(config: &AgentConfig, settings: &LlmSettings) -> bool {
    let has_servers = settings.tools.values().any(|tool| tool.mcp.is_some());
    has_servers && !config.card.has_skills()
}

/// Builds the remaining agents, in the order of the file.
///
/// # Errors
/// A setting is invalid.
pub(crate) fn build(
    agents: &[AgentConfig],
    mut built: BTreeMap<String, BuiltAgent>,
    resources: AgentResources<'_>,
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
                    .build(&targets, resources)
                    .map_err(|error| error.in_section(&config.section()))?,
            };
            let card = config.card.card(&config.name, &config.kind, built.card);
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
        let hosted = HostedAgent::new(&config.name, card, target.agent.clone());
        Some(
            config
                .card
                .apply_to(hosted)
                .settings(config.settings.clone()),
        )
    });
    Ok(hosted.collect())
}

impl AgentConfig {
    /// Configuration of an agent in a file of its own, with defaults.
    #[cfg(unix)]
    pub(crate) fn worker(file: &Path) -> Self {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = stem.replace(|c| !is_allowed(c), "-");
        let settings = WorkerSettings {
            file: Some(file.to_owned()),
            ..WorkerSettings::default()
        };
        Self {
            name: if name.is_empty() {
                "agent".to_owned()
            } else {
                name
            },
            card: CardSection::default(),
            settings: AgentSettings::default(),
            auth: AgentAuthSection::default(),
            kind: AgentKind::Worker(Box::new(settings)),
        }
    }

    /// The file of a worker agent.
    pub(super) fn worker_file(&self) -> Option<&Path> {
        match &self.kind {
            #[cfg(unix)]
            AgentKind::Worker(settings) => settings.file.as_deref(),
            _ => None,
        }
    }

    /// The section of the agent.
    fn section(&self) -> String {
        format!("agents.{}", self.name)
    }
}
