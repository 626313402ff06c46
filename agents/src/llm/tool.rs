//! Tools that a model may call: commands, HTTP endpoints, agents, tools of the caller, and tools of MCP servers.

use std::sync::Arc;

use attache::model::{AgentSkill, Artifact, Part};
use attache::{HttpClient, Turn};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Uri};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::delegate::Delegate;
use super::history::LlmStep;
use super::settings::ToolSettings;
use super::untrusted_text::sanitize;
use crate::caller_propagation;
use crate::chat_model::ToolCall;
#[cfg(unix)]
use crate::command::{CommandAgent, CommandSettings, CommandSpec};
use crate::mcp_client::{
    CallError, CallEvent, CallProgress, CatalogTool, McpConnection, ToolStatus, into_text_and_files,
};
use crate::outgoing::{URL_RULE, USER_AGENT, parse_headers, parse_url};
use crate::supervisor::Supervisor;
use crate::tool_name::{MAX_TOOL_NAME, is_tool_name_char};

/// Maximum size of the description of a tool on the agent card.
const MAX_SKILL_DESCRIPTION: usize = 1 << 10;
/// Maximum size of a progress message.
const MAX_PROGRESS: usize = 1 << 10;

/// Tool, ready to be called.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) settings: ToolSettings,
    pub(super) kind: ToolKind,
}

/// Implementation of a tool.
#[derive(Debug)]
pub(super) enum ToolKind {
    #[cfg(unix)]
    Command(Box<CommandAgent>),
    Http(Box<HttpTool>),
    Agent(Box<Delegate>),
    /// The caller executes the tool.
    Client,
    Mcp(McpTool),
}

/// Tool of an MCP server.
#[derive(Debug)]
pub(super) struct McpTool {
    pub(super) connection: Arc<McpConnection>,
    pub(super) catalog_tool: Arc<CatalogTool>,
}

/// HTTP endpoint that receives the arguments of calls.
#[derive(Debug)]
pub(super) struct HttpTool {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    http: HttpClient,
}

/// Result of a call, or the reason why there is none. Both are written for the model.
pub(super) type ToolOutput = Result<String, String>;

impl Tool {
    /// Checks the name and the settings of a tool of any kind.
    pub(super) fn check(name: &str, settings: &ToolSettings) -> Result<(), String> {
        let is_valid =
            !name.is_empty() && name.len() <= MAX_TOOL_NAME && name.chars().all(is_tool_name_char);
        if !is_valid {
            return Err(format!(
                "the name of a tool must have 1 to {MAX_TOOL_NAME} letters, digits, - and _"
            ));
        }
        let kinds = [
            !settings.command.is_empty(),
            settings.http.is_some(),
            settings.agent.is_some(),
            settings.client,
            settings.mcp.is_some(),
        ];
        if kinds.into_iter().filter(|is_set| *is_set).count() != 1 {
            return Err(format!(
                "tool `{name}` must have exactly one of command, http, agent, client and mcp"
            ));
        }
        if settings.client && settings.approval {
            return Err(format!(
                "tool `{name}` is executed by the caller and must not have approval"
            ));
        }
        Ok(())
    }

    /// Creates a tool from checked settings. It must not be an MCP server.
    pub(super) fn new(
        name: &str,
        settings: ToolSettings,
        supervisor: Option<&Supervisor>,
    ) -> Result<Self, String> {
        let kind = tool_kind(&settings, supervisor)
            .map_err(|reason| format!("tool `{name}`: {reason}"))?;
        Ok(Self {
            name: name.to_owned(),
            settings,
            kind,
        })
    }

    /// Returns the tool as a skill of the agent card.
    pub(super) fn skill(&self) -> AgentSkill {
        let about = sanitize(&self.settings.description, MAX_SKILL_DESCRIPTION);
        let description = if about.is_empty() { &self.name } else { &about };
        AgentSkill::new(&self.name, &self.name, description).tag("tool")
    }

    /// Returns the definition of the tool for the model.
    pub(super) fn definition(&self) -> Value {
        let configured = &self.settings.parameters;
        let parameters = match &self.kind {
            _ if !configured.is_empty() => Value::Object(configured.clone()),
            ToolKind::Agent(_) => {
                json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]})
            }
            _ => json!({"type": "object", "properties": {}}),
        };
        let function = json!({"name": self.name, "description": self.settings.description, "parameters": parameters});
        json!({"type": "function", "function": function})
    }

    /// Calls a command, an HTTP endpoint or an MCP server. Agents and the caller are called by `CallRunner`.
    pub(super) async fn call(
        &self,
        turn: &Turn,
        call: &ToolCall,
        arguments: &Map<String, Value>,
    ) -> ToolOutput {
        let body = Value::Object(arguments.clone()).to_string();
        let called = async {
            match &self.kind {
                #[cfg(unix)]
                ToolKind::Command(command) => command.call_as_tool(turn, body).await,
                ToolKind::Http(endpoint) => self.call_http(turn, call, body, endpoint).await,
                ToolKind::Mcp(mcp_tool) => self.call_mcp(turn, call, arguments, mcp_tool).await,
                ToolKind::Agent(_) | ToolKind::Client => {
                    Err("this tool cannot be called directly".to_owned())
                }
            }
        };
        let max_time = self.settings.timeout;
        match timeout(max_time, called).await {
            Ok(output) => self.sanitized(output),
            Err(_) => Err(format!("the tool took longer than {max_time:?}")),
        }
    }

    /// Returns whether the MCP server no longer offers the tool.
    pub(super) fn is_removed(&self) -> bool {
        self.has_status(ToolStatus::Removed)
    }

    /// Returns whether the MCP server has changed the definition of the tool.
    pub(super) fn has_changed(&self) -> bool {
        self.has_status(ToolStatus::Changed)
    }

    fn has_status(&self, status: ToolStatus) -> bool {
        matches!(&self.kind, ToolKind::Mcp(mcp_tool) if mcp_tool.catalog_tool.status == status)
    }

    /// Removes invisible characters from an output, and truncates it to `max_output`.
    pub(super) fn sanitized(&self, output: ToolOutput) -> ToolOutput {
        let sanitize = |text: String| sanitize(&text, self.settings.max_output);
        output.map(sanitize).map_err(sanitize)
    }

    /// Calls a tool of an MCP server. Repeats the call once if the server did not receive it, or if it is repeatable.
    async fn call_mcp(
        &self,
        turn: &Turn,
        call: &ToolCall,
        arguments: &Map<String, Value>,
        mcp_tool: &McpTool,
    ) -> ToolOutput {
        let first = self.call_mcp_once(turn, call, arguments, mcp_tool).await;
        let may_repeat = match &first {
            Err(CallError::SessionExpired) => true,
            Err(CallError::ConnectionLost) => self.settings.repeat,
            _ => false,
        };
        let output = if may_repeat {
            self.call_mcp_once(turn, call, arguments, mcp_tool).await
        } else {
            first
        };
        output.unwrap_or_else(|error| Err(error.message()))
    }

    async fn call_mcp_once(
        &self,
        turn: &Turn,
        call: &ToolCall,
        arguments: &Map<String, Value>,
        mcp_tool: &McpTool,
    ) -> Result<ToolOutput, CallError> {
        let trace = turn.trace();
        let started = mcp_tool
            .connection
            .start_call(
                &mcp_tool.catalog_tool,
                arguments.clone(),
                self.settings.timeout,
                trace.as_ref(),
            )
            .await;
        let mut pending = match started {
            Ok(pending) => pending,
            Err(unavailable) => return Ok(Err(unavailable.message)),
        };
        loop {
            match pending.next().await {
                CallEvent::Progress(progress) => publish_progress(turn, call, progress).await,
                CallEvent::Result(result) => {
                    let has_failed = result.is_error == Some(true);
                    let (text, files) = into_text_and_files(*result);
                    publish_files(turn, call, files).await;
                    return Ok(if has_failed { Err(text) } else { Ok(text) });
                }
                CallEvent::Failed(error) => return Err(error),
            }
        }
    }

    async fn call_http(
        &self,
        turn: &Turn,
        call: &ToolCall,
        body: String,
        endpoint: &HttpTool,
    ) -> ToolOutput {
        let request = Request::post(endpoint.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("user-agent", USER_AGENT)
            .header("idempotency-key", format!("{}:{}", turn.task_id(), call.id));
        let mut request =
            caller_propagation::add_headers(request, turn, self.settings.forward_caller);
        for (name, value) in &endpoint.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Bytes::from(body))
            .map_err(|_| "the call cannot be sent".to_owned())?;
        let response = endpoint
            .http
            .send(request)
            .await
            .map_err(|_| "the tool cannot be reached".to_owned())?;
        let status = response.status();
        let body = response
            .read(max_body(&self.settings))
            .await
            .map_err(|_| "the response of the tool broke off or is too large".to_owned())?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            Ok(text)
        } else {
            Err(format!("the tool failed: {status}\n{text}"))
        }
    }
}

/// Returns the number of bytes to read from a tool: more than `max_output`, so that the model sees the truncation mark.
fn max_body(settings: &ToolSettings) -> usize {
    settings.max_output.saturating_mul(4).max(4 << 10)
}

async fn publish_progress(turn: &Turn, call: &ToolCall, progress: CallProgress) {
    let step = LlmStep::ToolProgress {
        id: call.id.clone(),
        name: call.name.clone(),
        progress: progress.progress,
        total: progress.total,
        text: sanitize(&progress.message.unwrap_or_default(), MAX_PROGRESS),
    };
    step.publish(turn).await;
}

/// Adds the files of a result to the task. The model cannot read them, but the caller can.
async fn publish_files(turn: &Turn, call: &ToolCall, files: Vec<Part>) {
    for (at, file) in files.into_iter().enumerate() {
        let name = file.filename().unwrap_or(&call.name).to_owned();
        let artifact = Artifact::new(name, file).with_id(format!("{}-{at}", call.id));
        turn.add_artifact(artifact).await;
    }
}

fn tool_kind(settings: &ToolSettings, supervisor: Option<&Supervisor>) -> Result<ToolKind, String> {
    if settings.client {
        return Ok(ToolKind::Client);
    }
    if let Some(url) = &settings.agent {
        let delegate = Delegate::new(url, &settings.headers, settings.forward_caller)?;
        return Ok(ToolKind::Agent(Box::new(delegate)));
    }
    if let Some(url) = &settings.http {
        return Ok(ToolKind::Http(Box::new(HttpTool {
            url: parse_url(url).map_err(|_| format!("http {URL_RULE}"))?,
            headers: parse_headers(&settings.headers)?,
            http: HttpClient::new(),
        })));
    }
    command(settings, supervisor)
}

#[cfg(unix)]
fn command(settings: &ToolSettings, supervisor: Option<&Supervisor>) -> Result<ToolKind, String> {
    let command = CommandSettings {
        command: CommandSpec::List(settings.command.clone()),
        timeout: Some(settings.timeout),
        max_output: max_body(settings),
        supervisor: supervisor.cloned(),
        ..CommandSettings::default()
    };
    CommandAgent::from_settings(command)
        .map(|command| ToolKind::Command(Box::new(command)))
        .map_err(|error| error.to_string())
}

#[cfg(not(unix))]
fn command(_: &ToolSettings, _: Option<&Supervisor>) -> Result<ToolKind, String> {
    Err("commands need a Unix system".to_owned())
}
