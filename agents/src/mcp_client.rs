//! MCP servers: their tools for models, and an agent whose skills they are.

mod arguments;
mod connection;
mod http_transport;
mod pending_call;
mod settings;
#[cfg(unix)]
mod stdio_process;
mod tool_catalog;
mod tool_request;
mod tool_result;

use std::fmt;

use attache::model::{AgentSkill, Artifact, Message, Part, Role};
use attache::{Agent, Failure, Outcome, Turn};
use rmcp::model::{CallToolResult, ErrorCode};
use serde_json::{Map, Value, json};

use crate::llm::sanitize;
use crate::router::SKILL_KEY;
use arguments::ArgumentError;
pub(crate) use connection::McpConnection;
pub(crate) use pending_call::{CallError, CallEvent, CallProgress};
pub use settings::{McpServerSettings, McpSettings};
pub(crate) use tool_catalog::{CatalogTool, ToolCatalog, ToolStatus};
use tool_request::ToolRequest;
pub(crate) use tool_result::into_text_and_files;

/// How much is passed on of what a tool says about how it goes, or why it failed.
const MAX_MESSAGE: usize = 4 << 10;

/// Offers the tools of an MCP server as skills, without a model.
///
/// A skill is called by a data part, `{"skill": "add", "arguments": {"a": 1}}`, or by a text: its name, then its
/// arguments as JSON, or nothing. What the tool gives is a result of the skill's name; what it says about how it goes
/// are status updates.
///
/// ```
/// use attache_agents::{McpAgent, McpServerSettings, McpSettings};
/// let server = McpServerSettings { command: vec!["mcp-server-time".to_owned()], ..Default::default() };
/// let agent = McpAgent::new(McpSettings { server, ..McpSettings::default() })?;
/// # Ok::<(), attache_agents::McpSettingsError>(())
/// ```
#[derive(Debug)]
pub struct McpAgent {
    connection: McpConnection,
    settings: McpSettings,
}

/// Settings that no such agent can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettingsError {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl McpAgent {
    /// An agent before a server, which need not be there yet.
    ///
    /// # Errors
    /// The server has not exactly one of a command and a url, or a header of it cannot be sent.
    pub fn new(settings: McpSettings) -> Result<Self, McpSettingsError> {
        let connection = McpConnection::new(settings.server.clone())
            .map_err(|why| McpSettingsError { key: "server", why })?;
        Ok(Self {
            connection,
            settings,
        })
    }

    /// What the server can do, for the card. Connects it.
    ///
    /// # Errors
    /// Why the server is not there, in words.
    pub async fn skills(&self) -> Result<Vec<AgentSkill>, String> {
        let catalog = self
            .connection
            .catalog()
            .await
            .map_err(|unavailable| unavailable.message)?;
        Ok(catalog.tools.iter().map(|tool| skill(tool)).collect())
    }

    /// Why a message may not call this skill, as far as that depends on what it names: whoever says who may use a skill has read
    /// that and nothing else.
    fn skill_name_error(&self, message: &Message, skill: &str) -> Option<String> {
        let named = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(SKILL_KEY));
        match named.map(|named| named.read::<String>()) {
            Some(Ok(named)) if named == skill => None,
            None if !self.settings.named_skills => None,
            _ => Some(format!(
                "name the skill that is called in metadata.{SKILL_KEY} too: {}",
                sanitize(skill, 128)
            )),
        }
    }

    /// Calls a tool; once more if the server has not heard of it.
    async fn call(
        &self,
        turn: &Turn,
        tool: &CatalogTool,
        arguments: Map<String, Value>,
    ) -> Outcome {
        let called = match self.call_once(turn, tool, arguments.clone()).await {
            Err(CallError::SessionExpired) => self.call_once(turn, tool, arguments).await,
            called => called,
        };
        called.unwrap_or_else(|failed| match failed {
            CallError::Rejected(error) if error.code == ErrorCode::INVALID_PARAMS => {
                Outcome::rejected(CallError::Rejected(error).message())
            }
            failed => Outcome::failed(failed.message()),
        })
    }

    async fn call_once(
        &self,
        turn: &Turn,
        tool: &CatalogTool,
        arguments: Map<String, Value>,
    ) -> Result<Outcome, CallError> {
        let trace = turn.trace();
        let mut call = match self
            .connection
            .start_call(tool, arguments, self.settings.timeout, trace.as_ref())
            .await
        {
            Ok(call) => call,
            Err(unavailable) => return Ok(Outcome::failed(unavailable.message)),
        };
        loop {
            match call.next().await {
                CallEvent::Progress(progress) => {
                    turn.say_message(progress_message(&tool.name, progress))
                        .await
                }
                CallEvent::Result(result) => return Ok(self.finish(turn, tool, *result).await),
                CallEvent::Failed(failed) => return Err(failed),
            }
        }
    }

    async fn finish(&self, turn: &Turn, tool: &CatalogTool, result: CallToolResult) -> Outcome {
        let has_failed = result.is_error == Some(true);
        let mut parts = tool_result::into_parts(result);
        if has_failed {
            let message: Vec<_> = parts.iter().filter_map(Part::as_text).collect();
            let message = sanitize(&message.join("\n"), MAX_MESSAGE);
            return Outcome::failed(if message.is_empty() {
                "the tool failed".to_owned()
            } else {
                message
            });
        }
        if parts.is_empty() {
            parts.push(Part::text(""));
        }
        turn.add_artifact(Artifact {
            name: Some(tool.name.clone()),
            parts,
            ..Artifact::default()
        })
        .await;
        Outcome::Completed
    }
}

impl Agent for McpAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let catalog = match self.connection.catalog().await {
            Ok(catalog) => catalog,
            Err(unavailable) => return Ok(Outcome::failed(unavailable.message)),
        };
        let request = match ToolRequest::from_message(turn.message()) {
            Ok(request) => request,
            Err(why) => {
                return Ok(Outcome::rejected(format!(
                    "{why}; there are: {}",
                    names(&catalog)
                )));
            }
        };
        if let Some(why) = self.skill_name_error(turn.message(), &request.skill) {
            return Ok(Outcome::rejected(why));
        }
        let Some(tool) = catalog.tool(&request.skill) else {
            let skill = sanitize(&request.skill, 128);
            return Ok(Outcome::rejected(format!(
                "there is no skill `{skill}`; there are: {}",
                names(&catalog)
            )));
        };
        match tool.status {
            ToolStatus::Unchanged => {}
            ToolStatus::Removed => return Ok(Outcome::failed(removed_message(&tool.name))),
            ToolStatus::Changed => {
                let why =
                    "says something else of itself than when it was agreed to, and is not called";
                return Ok(Outcome::failed(format!("the tool `{}` {why}", tool.name)));
            }
        }
        if let Err(error) = arguments::validate(&request.arguments, &tool.schema) {
            return Ok(Outcome::Rejected(invalid_arguments(&error)));
        }
        Ok(self.call(&turn, tool, request.arguments).await)
    }

    /// What a tool does to the world cannot be done twice.
    fn needs_durable_start(&self) -> bool {
        true
    }
}

/// Why a tool that there was cannot be called.
pub(crate) fn removed_message(tool: &str) -> String {
    format!("the tool `{tool}` is gone: its MCP server does not offer it any more")
}

fn names(catalog: &ToolCatalog) -> String {
    let there = catalog
        .tools
        .iter()
        .filter(|tool| tool.status == ToolStatus::Unchanged);
    there
        .map(|tool| tool.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

fn skill(tool: &CatalogTool) -> AgentSkill {
    let required = tool
        .schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let kind = |name: &str| {
        tool.schema
            .get("properties")?
            .get(name)?
            .get("type")?
            .as_str()
    };
    let example = required
        .filter_map(Value::as_str)
        .map(|name| (name.to_owned(), json!(kind(name).unwrap_or("value"))));
    let example: Map<_, _> = example.collect();
    let example = match example.is_empty() {
        true => tool.name.clone(),
        false => format!("{} {}", tool.name, Value::Object(example)),
    };
    AgentSkill::new(&tool.name, &tool.name, &tool.description)
        .tag("mcp")
        .example(example)
}

fn progress_message(tool: &str, progress: CallProgress) -> Message {
    let CallProgress {
        progress,
        total,
        message,
    } = progress;
    let data = json!({"type": "tool-progress", "name": tool, "progress": progress, "total": total});
    let message = message.map(|message| Part::text(sanitize(&message, MAX_MESSAGE)));
    Message {
        role: Role::Agent,
        parts: message.into_iter().chain([Part::data(data)]).collect(),
        ..Message::default()
    }
}

fn invalid_arguments(error: &ArgumentError) -> Message {
    let ArgumentError { field, reason } = error;
    let data = json!({"type": "invalid-arguments", "field": field, "reason": reason});
    Message::agent(format!("`{field}` {reason}")).part(Part::data(data))
}

impl fmt::Display for McpSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for McpSettingsError {}
