//! The types of agents of a configuration file.

use std::path::PathBuf;

use attache::RestartPolicy;
#[cfg(unix)]
use attache_agents::{
    CommandAgent, CommandInput, CommandSettings, StdoutFormat, WorkerAgent, WorkerSettings,
};
use attache_agents::{
    Echo, HttpAgent, HttpSettings, LlmAgent, LlmSettings, McpAgent, McpSettings, RemoteAgent,
    RemoteSettings, RequestBody, RouteTarget, Router, RouterSettings, Script, demo_agent,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use toml::Value;

use super::super::error::{ConfigError, KeyError};
use super::super::tree::ConfigTree;
use super::{AgentResources, BuiltAgent};

/// A type of agent with its settings.
#[derive(Debug)]
pub(crate) enum AgentKind {
    #[cfg(unix)]
    Command(Box<CommandSettings>),
    Echo(NoSettings),
    Http(Box<HttpSettings>),
    Llm(Box<LlmSettings>),
    Mcp(Box<McpSettings>),
    Demo(NoSettings),
    Remote(Box<RemoteSettings>),
    Router(Box<RouterSettings>),
    Script(ScriptSection),
    #[cfg(unix)]
    Worker(Box<WorkerSettings>),
}

/// Settings of an agent type that has none.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoSettings {}

/// An agent that a file of rules describes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptSection {
    /// The file of rules.
    file: PathBuf,
}

impl AgentKind {
    /// Values of `type`.
    #[cfg(unix)]
    pub(crate) const NAMES: [&str; 10] = [
        "command", "echo", "http", "llm", "mcp", "demo", "remote", "router", "script", "worker",
    ];
    #[cfg(not(unix))]
    pub(crate) const NAMES: [&str; 8] = [
        "echo", "http", "llm", "mcp", "demo", "remote", "router", "script",
    ];

    /// Takes the settings of a type; `None` if the type is unknown.
    pub(super) fn take(
        name: &str,
        tree: &mut ConfigTree,
        section: &str,
    ) -> Result<Option<Self>, ConfigError> {
        let section = |_: &str| section.to_owned();
        Ok(Some(match name {
            #[cfg(unix)]
            "command" => Self::Command(Box::new(tree.take(section)?)),
            "echo" => Self::Echo(tree.take(section)?),
            "http" => Self::Http(Box::new(tree.take(section)?)),
            "llm" => Self::Llm(Box::new(tree.take(section)?)),
            "mcp" => Self::Mcp(Box::new(tree.take(section)?)),
            "demo" => Self::Demo(tree.take(section)?),
            "remote" => Self::Remote(Box::new(tree.take(section)?)),
            "router" => Self::Router(Box::new(tree.take(section)?)),
            "script" => Self::Script(tree.take(section)?),
            #[cfg(unix)]
            "worker" => Self::Worker(Box::new(tree.take(section)?)),
            _ => return Ok(None),
        }))
    }

    /// The JSON schema of each type.
    pub(in super::super) fn schemas(
        generator: &mut SchemaGenerator,
    ) -> Vec<(&'static str, Schema)> {
        vec![
            #[cfg(unix)]
            ("command", CommandSettings::json_schema(generator)),
            ("echo", NoSettings::json_schema(generator)),
            ("http", HttpSettings::json_schema(generator)),
            ("llm", LlmSettings::json_schema(generator)),
            ("mcp", McpSettings::json_schema(generator)),
            ("demo", NoSettings::json_schema(generator)),
            ("remote", RemoteSettings::json_schema(generator)),
            ("router", RouterSettings::json_schema(generator)),
            ("script", ScriptSection::json_schema(generator)),
            #[cfg(unix)]
            ("worker", WorkerSettings::json_schema(generator)),
        ]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            #[cfg(unix)]
            Self::Command(_) => "command",
            Self::Echo(_) => "echo",
            Self::Http(_) => "http",
            Self::Llm(_) => "llm",
            Self::Mcp(_) => "mcp",
            Self::Demo(_) => "demo",
            Self::Remote(_) => "remote",
            Self::Router(_) => "router",
            Self::Script(_) => "script",
            #[cfg(unix)]
            Self::Worker(_) => "worker",
        }
    }

    /// Default description on the card.
    pub(super) fn default_description(&self) -> &'static str {
        match self {
            #[cfg(unix)]
            Self::Command(_) => "Runs a command on the text of a message",
            Self::Echo(_) => "Echoes the message",
            Self::Http(_) => "Calls an HTTP backend",
            Self::Llm(_) => "Answers with a model",
            Self::Mcp(_) => "Offers the tools of an MCP server",
            Self::Demo(_) => "Shows all features of the protocol",
            Self::Remote(_) => "Forwards messages to another agent",
            Self::Router(_) => "Forwards tasks to other agents",
            Self::Script(_) => "Runs a script",
            #[cfg(unix)]
            Self::Worker(_) => "Runs a function in a worker process",
        }
    }

    /// Default input and output media types on the card.
    pub(super) fn default_modes(&self) -> (Vec<String>, Vec<String>) {
        let any = || vec!["*/*".to_owned()];
        let list = |modes: &[&str]| modes.iter().map(|mode| (*mode).to_owned()).collect();
        let text = || list(&["text/plain", "application/json"]);
        // Files are noted in the prompt with name and media type.
        let any_as_text = || list(&["text/plain", "application/json", "*/*"]);
        match self {
            #[cfg(unix)]
            Self::Command(settings) => {
                let reads = if settings.input == Some(CommandInput::Json) {
                    any()
                } else {
                    any_as_text()
                };
                let writes = match settings.output {
                    StdoutFormat::Text | StdoutFormat::Lines => vec!["text/plain".to_owned()],
                    StdoutFormat::JsonLines => any(),
                    StdoutFormat::File => vec![settings.media_type.clone()],
                };
                (reads, writes)
            }
            Self::Http(settings) if settings.body == RequestBody::Text => (text(), any()),
            Self::Llm(_) => (any_as_text(), vec!["text/plain".to_owned()]),
            Self::Mcp(_) => (text(), any()),
            #[cfg(unix)]
            Self::Worker(_) => (any(), any()),
            Self::Echo(_)
            | Self::Http(_)
            | Self::Demo(_)
            | Self::Remote(_)
            | Self::Router(_)
            | Self::Script(_) => (any(), any()),
        }
    }

    /// The settings as TOML, with defaults.
    pub(in super::super) fn values(&self) -> Result<Value, toml::ser::Error> {
        match self {
            #[cfg(unix)]
            Self::Command(settings) => Value::try_from(settings),
            Self::Echo(nothing) | Self::Demo(nothing) => Value::try_from(nothing),
            Self::Http(settings) => Value::try_from(settings),
            Self::Remote(settings) => Value::try_from(settings),
            Self::Llm(settings) => Value::try_from(settings),
            Self::Mcp(settings) => Value::try_from(settings),
            Self::Router(settings) => Value::try_from(settings),
            Self::Script(script) => Value::try_from(script),
            #[cfg(unix)]
            Self::Worker(settings) => Value::try_from(settings),
        }
    }

    /// Default restart policy: tasks of a remote agent continue there, so their turns run again.
    pub(super) fn on_restart(&self) -> Option<RestartPolicy> {
        matches!(self, Self::Remote(_)).then_some(RestartPolicy::RunAgain { attempts: 5 })
    }

    /// Whether other agents must be built before it.
    pub(crate) fn needs_others(&self) -> bool {
        matches!(self, Self::Router(_))
    }

    /// Builds the agent. `others` are the agents built before it.
    ///
    /// # Errors
    /// A setting is invalid; the key is relative to the section of the agent.
    pub(super) fn build(
        &self,
        others: &[RouteTarget],
        resources: AgentResources<'_>,
    ) -> Result<BuiltAgent, KeyError> {
        match self {
            #[cfg(unix)]
            Self::Command(settings) => {
                let mut settings = (**settings).clone();
                settings.supervisor = resources.supervisor.cloned();
                let command = CommandAgent::from_settings(settings)
                    .map_err(|error| KeyError::new("command", error))?;
                Ok(BuiltAgent::new(command))
            }
            Self::Echo(_) => Ok(BuiltAgent::new(Echo)),
            Self::Http(settings) => {
                let http = HttpAgent::new((**settings).clone())
                    .map_err(|error| KeyError::new(error.key, &error))?;
                Ok(BuiltAgent::new(http))
            }
            Self::Llm(settings) => {
                let llm = build_llm(settings, resources)?;
                let skills = llm.configured_skills();
                Ok(BuiltAgent::with_skills(llm, skills))
            }
            Self::Mcp(settings) => {
                let mut settings = (**settings).clone();
                settings.server.supervisor = resources.supervisor.cloned();
                let mcp =
                    McpAgent::new(settings).map_err(|error| KeyError::new(error.key, &error))?;
                Ok(BuiltAgent::new(mcp))
            }
            Self::Demo(_) => Ok(BuiltAgent::from_script(demo_agent())),
            Self::Remote(settings) => {
                let remote = RemoteAgent::new((**settings).clone())
                    .map_err(|error| KeyError::new(error.key, &error))?;
                Ok(BuiltAgent::new(match resources.signer {
                    Some(signer) => remote.with_signer(signer),
                    None => remote,
                }))
            }
            Self::Router(settings) => {
                let router = Router::new((**settings).clone(), others.iter().cloned())
                    .map_err(|error| KeyError::new(error.key, &error))?;
                let skills = router.skills().cloned().collect();
                Ok(BuiltAgent::with_skills(router, skills))
            }
            Self::Script(ScriptSection { file }) => {
                let path = file.display();
                let text = std::fs::read_to_string(file).map_err(|error| {
                    KeyError::new("file", format!("cannot read {path}: {error}"))
                })?;
                let script = Script::parse(&text)
                    .map_err(|error| KeyError::new("file", format!("{path}: {error}")))?;
                Ok(BuiltAgent::from_script(script))
            }
            #[cfg(unix)]
            Self::Worker(settings) => Ok(BuiltAgent::new(build_worker(settings, resources)?)),
        }
    }
}

/// Builds a worker agent. Its processes are not started.
///
/// # Errors
/// A setting is invalid.
#[cfg(unix)]
pub(super) fn build_worker(
    settings: &WorkerSettings,
    resources: AgentResources<'_>,
) -> Result<WorkerAgent, KeyError> {
    let mut settings = settings.clone();
    settings.supervisor = resources.supervisor.cloned();
    WorkerAgent::new(settings).map_err(|error| KeyError::new(error.key, &error))
}

/// Builds an LLM agent.
///
/// # Errors
/// A setting is invalid.
pub(super) fn build_llm(
    settings: &LlmSettings,
    resources: AgentResources<'_>,
) -> Result<LlmAgent, KeyError> {
    let mut settings = settings.clone();
    settings.supervisor = resources.supervisor.cloned();
    let llm = LlmAgent::new(settings).map_err(|error| KeyError::new(error.key, &error))?;
    Ok(match resources.signer {
        Some(signer) => llm.with_signer(signer),
        None => llm,
    })
}
