//! What a model may call.

use std::sync::Arc;

use attache::HttpClient;
use attache::Turn;
use attache::model::{Artifact, Part, Secret};
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
    CallError, CallEvent, CatalogTool, McpConnection, ToolStatus, into_text_and_files,
};

/// How much is passed on of what a tool says about how it goes.
const MAX_PROGRESS: usize = 1 << 10;

/// A tool, ready to be called.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) settings: ToolSettings,
    pub(super) kind: ToolKind,
}

/// How a tool is called.
#[derive(Debug)]
pub(super) enum ToolKind {
    #[cfg(unix)]
    Command(Box<CommandAgent>),
    Http(Box<HttpTool>),
    Agent(Box<Delegate>),
    Client,
    Mcp(McpTool),
}

/// A tool of an MCP server.
#[derive(Debug)]
pub(super) struct McpTool {
    pub(super) connection: Arc<McpConnection>,
    pub(super) catalog_tool: Arc<CatalogTool>,
}

/// Where the arguments of calls are posted to.
#[derive(Debug)]
pub(super) struct HttpTool {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    http: HttpClient,
}

/// What a call gave: a result, or why there is none, in words for the model.
pub(super) type ToolOutput = Result<String, String>;

impl Tool {
    /// What is wrong with a tool, whatever it is.
    pub(super) fn check(name: &str, settings: &ToolSettings) -> Result<(), String> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
            return Err("the name of a tool has letters, digits, - and _, at most 64".to_owned());
        }
        let ways = [
            !settings.command.is_empty(),
            settings.http.is_some(),
            settings.agent.is_some(),
            settings.client,
            settings.mcp.is_some(),
        ];
        if ways.into_iter().filter(|kind| *kind).count() != 1 {
            return Err(format!(
                "tool `{name}` must have exactly one of command, http, agent, client and mcp"
            ));
        }
        if settings.client && settings.approval {
            return Err(format!(
                "tool `{name}` is the caller's own, and needs no approval"
            ));
        }
        Ok(())
    }

    /// One that is no MCP server's, and was checked.
    pub(super) fn new(name: &str, settings: ToolSettings) -> Result<Self, String> {
        let kind = kind(&settings).map_err(|why| format!("tool `{name}`: {why}"))?;
        Ok(Self {
            name: name.to_owned(),
            settings,
            kind,
        })
    }

    /// The tool as the model is told of it.
    pub(super) fn definition(&self) -> Value {
        let message = json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
        let parameters = match (&self.kind, self.settings.parameters.is_empty()) {
            (_, false) => Value::Object(self.settings.parameters.clone()),
            (ToolKind::Agent(_), true) => message,
            (_, true) => json!({"type": "object", "properties": {}}),
        };
        let function = json!({"name": self.name, "description": self.settings.description, "parameters": parameters});
        json!({"type": "function", "function": function})
    }

    /// Calls it. Anything but an agent and the caller, who have ways of their own.
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
                    Err("this tool cannot be called like that".to_owned())
                }
            }
        };
        match timeout(self.settings.timeout, called).await {
            Ok(output) => self.sanitized(output),
            Err(_) => Err(format!(
                "the tool took longer than {:?}",
                self.settings.timeout
            )),
        }
    }

    /// Whether its server does not offer it any more.
    pub(super) fn is_removed(&self) -> bool {
        matches!(&self.kind, ToolKind::Mcp(mcp_tool) if mcp_tool.catalog_tool.status == ToolStatus::Removed)
    }

    /// Whether its server says something else of it than at first.
    pub(super) fn has_changed(&self) -> bool {
        matches!(&self.kind, ToolKind::Mcp(mcp_tool) if mcp_tool.catalog_tool.status == ToolStatus::Changed)
    }

    pub(super) fn sanitized(&self, output: ToolOutput) -> ToolOutput {
        let sanitize = |text: String| sanitize(&text, self.settings.max_output);
        output.map(sanitize).map_err(sanitize)
    }

    /// Asks an MCP server; once more if it has not heard of it, or went away and that does no harm.
    async fn call_mcp(
        &self,
        turn: &Turn,
        call: &ToolCall,
        arguments: &Map<String, Value>,
        mcp_tool: &McpTool,
    ) -> ToolOutput {
        match self.call_mcp_once(turn, call, arguments, mcp_tool).await {
            Err(CallError::SessionExpired) => {
                self.call_mcp_once(turn, call, arguments, mcp_tool).await
            }
            Err(CallError::ConnectionLost) if self.settings.repeat => {
                self.call_mcp_once(turn, call, arguments, mcp_tool).await
            }
            pending => pending,
        }
        .unwrap_or_else(|failed| Err(failed.message()))
    }

    async fn call_mcp_once(
        &self,
        turn: &Turn,
        call: &ToolCall,
        arguments: &Map<String, Value>,
        McpTool {
            connection,
            catalog_tool,
        }: &McpTool,
    ) -> Result<ToolOutput, CallError> {
        let trace = turn.trace();
        let pending = connection
            .start_call(
                catalog_tool,
                arguments.clone(),
                self.settings.timeout,
                trace.as_ref(),
            )
            .await;
        let mut pending = match pending {
            Ok(pending) => pending,
            Err(unavailable) => return Ok(Err(unavailable.message)),
        };
        loop {
            match pending.next().await {
                CallEvent::Progress(progress) => {
                    let (id, name) = (call.id.clone(), call.name.clone());
                    let text = sanitize(&progress.message.unwrap_or_default(), MAX_PROGRESS);
                    let (progress, total) = (progress.progress, progress.total);
                    LlmStep::ToolProgress {
                        id,
                        name,
                        progress,
                        total,
                        text,
                    }
                    .publish(turn)
                    .await;
                }
                CallEvent::Result(result) => {
                    let has_failed = result.is_error == Some(true);
                    let (text, files) = into_text_and_files(*result);
                    publish_files(turn, call, files).await;
                    return Ok(if has_failed { Err(text) } else { Ok(text) });
                }
                CallEvent::Failed(failed) => return Err(failed),
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
            .header("user-agent", concat!("attache/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", format!("{}:{}", turn.task_id(), call.id));
        let mut request =
            caller_propagation::add_headers(request, turn, self.settings.forward_caller);
        for (name, value) in &endpoint.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Bytes::from(body))
            .map_err(|_| "the call cannot be sent".to_owned())?;
        let answer = endpoint
            .http
            .send(request)
            .await
            .map_err(|_| "the tool cannot be reached".to_owned())?;
        let status = answer.status();
        // Beyond the limit it would be cut off anyway; this much more is read so that the cut is seen.
        let most = self.settings.max_output.saturating_mul(4).max(4 << 10);
        let body = answer
            .read(most)
            .await
            .map_err(|_| "the tool broke off, or said too much".to_owned())?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            Ok(text)
        } else {
            Err(format!("the tool failed: {status}\n{text}"))
        }
    }
}

/// Files are nothing that a model reads: the caller has them as results.
async fn publish_files(turn: &Turn, call: &ToolCall, files: Vec<Part>) {
    for (at, file) in files.into_iter().enumerate() {
        let name = file.filename().unwrap_or(&call.name).to_owned();
        turn.add_artifact(Artifact::new(name, file).with_id(format!("{}-{at}", call.id)))
            .await;
    }
}

fn kind(settings: &ToolSettings) -> Result<ToolKind, String> {
    if settings.client {
        return Ok(ToolKind::Client);
    }
    if let Some(url) = &settings.agent {
        let delegate = Delegate::new(url, &settings.headers, settings.forward_caller);
        return delegate.map(|delegate| ToolKind::Agent(Box::new(delegate)));
    }
    if let Some(url) = &settings.http {
        let wrong = || "http must begin with http:// or https:// and name a host".to_owned();
        let url: Uri = url.parse().map_err(|_| wrong())?;
        HttpClient::check(&url).map_err(|_| wrong())?;
        let headers = settings
            .headers
            .iter()
            .map(header)
            .collect::<Result<_, _>>()?;
        return Ok(ToolKind::Http(Box::new(HttpTool {
            url,
            headers,
            http: HttpClient::new(),
        })));
    }
    command(settings)
}

#[cfg(unix)]
fn command(settings: &ToolSettings) -> Result<ToolKind, String> {
    let command = CommandSettings {
        command: CommandSpec::List(settings.command.clone()),
        timeout: Some(settings.timeout),
        max_output: settings.max_output.saturating_mul(4).max(4 << 10),
        ..CommandSettings::default()
    };
    CommandAgent::from_settings(command)
        .map(|command| ToolKind::Command(Box::new(command)))
        .map_err(|why| why.to_string())
}

#[cfg(not(unix))]
fn command(_: &ToolSettings) -> Result<ToolKind, String> {
    Err("commands need a Unix system".to_owned())
}

fn header((name, value): (&String, &Secret)) -> Result<(HeaderName, HeaderValue), String> {
    let sent = HeaderName::try_from(name.as_str())
        .ok()
        .zip(HeaderValue::try_from(value.expose()).ok());
    let (name, mut value) = sent.ok_or_else(|| format!("`{name}` cannot be sent as a header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}
