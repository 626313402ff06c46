//! The kinds of agents that a file can name.

use std::path::PathBuf;

use attache::RestartPolicy;
use attache::jws::Signer;
use attache::model::AgentSkill;
use attache_agents::{
    AnyAgent, Echo, HttpAgent, HttpSettings, LlmAgent, LlmSettings, McpAgent, McpSettings,
    RemoteAgent, RemoteSettings, RequestBody, RouteTarget, Router, RouterSettings, Script,
    demo_agent,
};
#[cfg(unix)]
use attache_agents::{CommandAgent, CommandInput, CommandSettings, StdoutFormat};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use toml::Value;

use super::super::error::ConfigError;
use super::super::tree::ConfigTree;

/// One kind of agent, with what can be said of it.
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
}

/// An agent of which nothing needs to be said.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoSettings {}

/// An agent that does what a file of rules says.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptSection {
    /// The file of rules.
    file: PathBuf,
}

impl AgentKind {
    /// Their names in a file.
    #[cfg(unix)]
    pub(crate) const NAMES: [&str; 9] = [
        "command", "echo", "http", "llm", "mcp", "demo", "remote", "router", "script",
    ];
    #[cfg(not(unix))]
    pub(crate) const NAMES: [&str; 8] = [
        "echo", "http", "llm", "mcp", "demo", "remote", "router", "script",
    ];

    pub(super) fn take(
        name: &str,
        tree: &mut ConfigTree,
        section: &str,
    ) -> Result<Option<Self>, ConfigError> {
        let home = |_: &str| section.to_owned();
        Ok(Some(match name {
            #[cfg(unix)]
            "command" => Self::Command(Box::new(tree.take(home)?)),
            "echo" => Self::Echo(tree.take(home)?),
            "http" => Self::Http(Box::new(tree.take(home)?)),
            "llm" => Self::Llm(Box::new(tree.take(home)?)),
            "mcp" => Self::Mcp(Box::new(tree.take(home)?)),
            "demo" => Self::Demo(tree.take(home)?),
            "remote" => Self::Remote(Box::new(tree.take(home)?)),
            "router" => Self::Router(Box::new(tree.take(home)?)),
            "script" => Self::Script(tree.take(home)?),
            _ => return Ok(None),
        }))
    }

    /// What can be said of each kind.
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
        }
    }

    /// What it does, where the file does not say it.
    pub(super) fn does(&self) -> &'static str {
        match self {
            #[cfg(unix)]
            Self::Command(_) => "Runs a command on the text of a message",
            Self::Echo(_) => "Says back what it is told",
            Self::Http(_) => "Asks a backend",
            Self::Llm(_) => "Answers with a model",
            Self::Mcp(_) => "Does what the tools of an MCP server do",
            Self::Demo(_) => "Shows everything an agent can do",
            Self::Remote(_) => "Passes messages on to another agent",
            Self::Router(_) => "Passes tasks on to other agents",
            Self::Script(_) => "Does what its script says",
        }
    }

    /// The media types that it reads and writes, where the file does not say it.
    pub(super) fn modes(&self) -> (Vec<String>, Vec<String>) {
        let any = || vec!["*/*".to_owned()];
        // What is not text becomes a line of it.
        let text = || {
            ["text/plain", "application/json"]
                .map(str::to_owned)
                .to_vec()
        };
        match self {
            #[cfg(unix)]
            Self::Command(settings) => {
                let reads = if settings.input == Some(CommandInput::Json) {
                    any()
                } else {
                    text()
                };
                let writes = match settings.output {
                    StdoutFormat::Text | StdoutFormat::Lines => vec!["text/plain".to_owned()],
                    StdoutFormat::JsonLines => any(),
                    StdoutFormat::File => vec![settings.media_type.clone()],
                };
                (reads, writes)
            }
            Self::Http(settings) if settings.body == RequestBody::Text => (text(), any()),
            Self::Llm(_) => (text(), vec!["text/plain".to_owned()]),
            Self::Mcp(_) => (text(), any()),
            Self::Echo(_)
            | Self::Http(_)
            | Self::Demo(_)
            | Self::Remote(_)
            | Self::Router(_)
            | Self::Script(_) => (any(), any()),
        }
    }

    /// What was said of it, and what was not.
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
        }
    }

    /// What becomes of a task that a restart cut off, where the file does not say it: one that goes on elsewhere is
    /// followed there.
    pub(super) fn on_restart(&self) -> Option<RestartPolicy> {
        matches!(self, Self::Remote(_)).then_some(RestartPolicy::RunAgain { attempts: 5 })
    }

    /// Whether it needs others to be made before it.
    pub(crate) fn needs_others(&self) -> bool {
        matches!(self, Self::Router(_))
    }

    /// Makes the agent, and the skills that it has by nature; `others` were made before it, and `signer` signs for whom it calls.
    ///
    /// # Errors
    /// The key at fault, and why.
    pub(super) fn build(
        &self,
        others: &[RouteTarget],
        signer: Option<&Signer>,
    ) -> Result<(AnyAgent, Vec<AgentSkill>), (&'static str, String)> {
        match self {
            #[cfg(unix)]
            Self::Command(settings) => {
                let command = CommandAgent::from_settings((**settings).clone());
                Ok((
                    AnyAgent::new(command.map_err(|why| ("command", why.to_string()))?),
                    Vec::new(),
                ))
            }
            Self::Echo(_) => Ok((AnyAgent::new(Echo), Vec::new())),
            Self::Http(settings) => {
                let http = HttpAgent::new((**settings).clone())
                    .map_err(|bad| (bad.key, bad.to_string()))?;
                Ok((AnyAgent::new(http), Vec::new()))
            }
            Self::Llm(settings) => {
                let llm = LlmAgent::new((**settings).clone())
                    .map_err(|bad| (bad.key, bad.to_string()))?;
                let llm = match signer {
                    Some(signer) => llm.with_signer(signer),
                    None => llm,
                };
                Ok((AnyAgent::new(llm), Vec::new()))
            }
            Self::Mcp(settings) => {
                let mcp = McpAgent::new((**settings).clone())
                    .map_err(|bad| (bad.key, bad.to_string()))?;
                Ok((AnyAgent::new(mcp), Vec::new()))
            }
            Self::Demo(_) => Ok(with_skills(demo_agent())),
            Self::Remote(settings) => {
                let remote = RemoteAgent::new((**settings).clone())
                    .map_err(|bad| (bad.key, bad.to_string()))?;
                let remote = match signer {
                    Some(signer) => remote.with_signer(signer),
                    None => remote,
                };
                Ok((AnyAgent::new(remote), Vec::new()))
            }
            Self::Router(settings) => {
                let router = Router::new((**settings).clone(), others.iter().cloned());
                let router = router.map_err(|bad| (bad.key, bad.to_string()))?;
                let skills = router.skills().cloned().collect();
                Ok((AnyAgent::new(router), skills))
            }
            Self::Script(ScriptSection { file }) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|why| ("file", format!("cannot read {}: {why}", file.display())))?;
                let script = Script::parse(&text)
                    .map_err(|why| ("file", format!("{}: {why}", file.display())))?;
                Ok(with_skills(script))
            }
        }
    }
}

fn with_skills(script: Script) -> (AnyAgent, Vec<AgentSkill>) {
    let skills = script.skills().collect();
    (AnyAgent::new(script), skills)
}
