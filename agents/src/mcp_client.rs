//! MCP client: the tools of MCP servers, for models and as skills of an agent.
//!
//! [`McpConnection`] connects to a server and reconnects, [`ToolCatalog`] has its tools, and [`PendingCall`] is a call in
//! progress. [`McpAgent`] exposes the tools of one server without a model.
//!
//! [`PendingCall`]: pending_call::PendingCall

mod active_connection;
mod arguments;
mod connection;
mod http_transport;
mod notifications;
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

/// Maximum size of a progress or error message that is forwarded.
const MAX_MESSAGE: usize = 4 << 10;

/// Agent that exposes the tools of an MCP server as skills, without a model.
///
/// A message calls a skill with a data part such as `{"skill": "add", "arguments": {"a": 1}}`, or with a text: the name of
/// the skill, optionally followed by its arguments as JSON. The result is an artifact with the name of the skill. Progress
/// notifications become status updates.
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

/// Error for invalid settings of an [`McpAgent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpSettingsError {
    /// Invalid key.
    pub key: &'static str,
    reason: String,
}

impl McpAgent {
    /// Creates an agent. Connects at the first use.
    ///
    /// # Errors
    /// The server does not have exactly one of a command and a URL, or a header is invalid.
    pub fn new(settings: McpSettings) -> Result<Self, McpSettingsError> {
        let connection =
            McpConnection::new(settings.server.clone()).map_err(|reason| McpSettingsError {
                key: "server",
                reason,
            })?;
        Ok(Self {
            connection,
            settings,
        })
    }

    /// Returns the tools of the server as skills, for the agent card. Connects to the server.
    ///
    /// # Errors
    /// The server is not available.
    pub async fn skills(&self) -> Result<Vec<AgentSkill>, String> {
        let catalog = self
            .connection
            .catalog()
            .await
            .map_err(|unavailable| unavailable.message)?;
        Ok(catalog.tools.iter().map(|tool| skill(tool)).collect())
    }

    /// Returns the reason if the message names another skill in its metadata than it calls.
    ///
    /// Access rules read only the metadata, so both must agree.
    fn skill_name_error(&self, message: &Message, skill: &str) -> Option<String> {
        let named = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(SKILL_KEY));
        match named.map(|named| named.read::<String>()) {
            Some(Ok(named)) if named == skill => None,
            None if !self.settings.named_skills => None,
            _ => Some(format!(
                "name the called skill in metadata.{SKILL_KEY} too: {}",
                sanitize(skill, 128)
            )),
        }
    }

    /// Calls a tool. Repeats the call once if the server did not receive it.
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
        called.unwrap_or_else(|error| match error {
            CallError::Rejected(error) if error.code == ErrorCode::INVALID_PARAMS => {
                Outcome::rejected(CallError::Rejected(error).message())
            }
            error => Outcome::failed(error.message()),
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
                CallEvent::Failed(error) => return Err(error),
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
            Err(reason) => {
                let skills = names(&catalog);
                return Ok(Outcome::rejected(format!("{reason}; there are: {skills}")));
            }
        };
        if let Some(reason) = self.skill_name_error(turn.message(), &request.skill) {
            return Ok(Outcome::rejected(reason));
        }
        let Some(tool) = catalog.tool(&request.skill) else {
            let skill = sanitize(&request.skill, 128);
            let skills = names(&catalog);
            return Ok(Outcome::rejected(format!(
                "there is no skill `{skill}`; there are: {skills}"
            )));
        };
        match tool.status {
            ToolStatus::Unchanged => {}
            ToolStatus::Removed => return Ok(Outcome::failed(removed_message(&tool.name))),
            ToolStatus::Changed => {
                return Ok(Outcome::failed(format!(
                    "the definition of the tool `{}` has changed since it was reviewed; it is not called",
                    tool.name
                )));
            }
        }
        if let Err(error) = arguments::validate(&request.arguments, &tool.schema) {
            return Ok(Outcome::Rejected(invalid_arguments(&error)));
        }
        Ok(self.call(&turn, tool, request.arguments).await)
    }

    /// Returns `true`: a tool has side effects and must not be called twice for one turn.
    fn needs_durable_start(&self) -> bool {
        true
    }
}

/// Returns the message for a tool that its server has removed.
pub(crate) fn removed_message(tool: &str) -> String {
    format!("the tool `{tool}` was removed: its MCP server no longer offers it")
}

/// Returns the names of all tools that can be called.
fn names(catalog: &ToolCatalog) -> String {
    let callable = catalog
        .tools
        .iter()
        .filter(|tool| tool.status == ToolStatus::Unchanged);
    callable
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
    let type_of = |name: &str| {
        tool.schema
            .get("properties")?
            .get(name)?
            .get("type")?
            .as_str()
    };
    let example = required
        .filter_map(Value::as_str)
        .map(|name| (name.to_owned(), json!(type_of(name).unwrap_or("value"))));
    let example: Map<_, _> = example.collect();
    let example = if example.is_empty() {
        tool.name.clone()
    } else {
        format!("{} {}", tool.name, Value::Object(example))
    };
    AgentSkill::new(&tool.name, &tool.name, &tool.description)
        .tag("mcp")
        .example(example)
}

fn progress_message(tool: &str, progress: CallProgress) -> Message {
    let data = json!({
        "type": "tool-progress", "name": tool, "progress": progress.progress, "total": progress.total,
    });
    let text = progress
        .message
        .map(|message| Part::text(sanitize(&message, MAX_MESSAGE)));
    Message {
        role: Role::Agent,
        parts: text.into_iter().chain([Part::data(data)]).collect(),
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
        f.write_str(&self.reason)
    }
}

impl std::error::Error for McpSettingsError {}
