//! MCP server: exposes A2A agents as tools, for editors and assistants.
//!
//! `tool_list` defines the tools, `tools` executes their calls, `results` converts tasks into tool results, `documents`
//! adds tools that read documents, and `http` serves the streamable HTTP transport.

mod documents;
mod http;
mod results;
mod tool_list;
mod tools;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attache::Client;
use attache::model::{AgentCard, TaskId};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use tokio_util::sync::CancellationToken;

use crate::lock::lock;
pub use documents::{Document, DocumentSection, Documents};
pub use http::McpHttpSettings;
use tool_list::ServerTool;

/// Maximum number of tasks whose agent is cached. The agents of others are looked up.
const MAX_TASK_OWNERS: usize = 10_000;

/// Instructions that a client receives at the handshake.
const INSTRUCTIONS: &str = "Each tool that is named after an agent sends that agent a message and waits for the result. \
Work that takes longer returns a task id: wait for the task, look at it, continue it or cancel it by that id, also \
later and from another client. ";

/// MCP server whose tools are A2A agents: one tool for each agent, and four for tasks. It can also offer documents.
///
/// A call waits for its agent and forwards progress notifications. It returns when the task ends, when the agent asks a
/// question, or after the maximum wait time; from then on the task is reached by its id. Canceling a call cancels its
/// task.
#[derive(Debug, Clone)]
pub struct McpServer(Arc<McpServerInner>);

#[derive(Debug)]
struct McpServerInner {
    agents: Vec<ExposedAgent>,
    tools: Vec<ServerTool>,
    documents: Option<Box<dyn Documents>>,
    /// Maximum wait time of a call.
    max_wait: Duration,
    /// Index of the agent of each task.
    task_owners: Mutex<HashMap<TaskId, usize>>,
}

/// Agent that an [`McpServer`] exposes.
#[derive(Debug, Clone)]
pub struct ExposedAgent {
    /// Name of the agent. The tool name is derived from it.
    pub name: String,
    /// Card of the agent, for the description of the tool.
    pub card: AgentCard,
    /// Client for calls to the agent.
    pub client: Client,
}

impl McpServer {
    /// Creates a server for these agents. A call waits at most `max_wait` for its task.
    #[must_use]
    pub fn new(agents: Vec<ExposedAgent>, max_wait: Duration) -> Self {
        Self::build(agents, None, max_wait)
    }

    /// Creates a server that also offers documents: tools that list, read and search them.
    #[must_use]
    pub fn with_documents(
        agents: Vec<ExposedAgent>,
        documents: Box<dyn Documents>,
        max_wait: Duration,
    ) -> Self {
        Self::build(agents, Some(documents), max_wait)
    }

    fn build(
        agents: Vec<ExposedAgent>,
        documents: Option<Box<dyn Documents>>,
        max_wait: Duration,
    ) -> Self {
        let tools = tool_list::tools(&agents, documents.is_some());
        Self(Arc::new(McpServerInner {
            agents,
            tools,
            documents,
            max_wait,
            task_owners: Mutex::default(),
        }))
    }

    /// Serves one client over stdin and stdout, until it disconnects or `stop` is canceled.
    ///
    /// # Errors
    /// The client does not speak MCP.
    pub async fn serve_stdio(self, stop: CancellationToken) -> io::Result<()> {
        let served = self
            .serve_with_ct(rmcp::transport::stdio_pipes(), stop)
            .await;
        match served {
            // A client may disconnect before the handshake.
            Err(ServerInitializeError::Cancelled | ServerInitializeError::ConnectionClosed(_)) => {
                Ok(())
            }
            Err(error) => Err(io::Error::other(error)),
            Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        }
    }

    /// Caches the agent of a task.
    fn record_owner(&self, task: &TaskId, agent: usize) {
        let mut owners = lock(&self.0.task_owners);
        if owners.len() < MAX_TASK_OWNERS {
            owners.insert(task.clone(), agent);
        }
    }

    fn cached_owner(&self, task: &TaskId) -> Option<usize> {
        lock(&self.0.task_owners).get(task).copied()
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("attache", env!("CARGO_PKG_VERSION"));
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut instructions = String::new();
        if !self.0.agents.is_empty() {
            instructions.push_str(INSTRUCTIONS);
        }
        if let Some(documents) = &self.0.documents {
            instructions.push_str(&documents.instructions());
        }
        ServerConfig::new(capabilities)
            .with_server_info(server)
            .with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.0.tools.iter().map(|tool| tool.definition.clone());
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut tools = self.0.tools.iter();
        let Some(tool) = tools.find(|tool| tool.definition.name == request.name) else {
            let message = format!("there is no tool `{}`", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let result = self.handle_call(tool.action, arguments, &context).await;
        Ok(CallToolResponse::Complete(result.unwrap_or_else(|error| {
            results::error_result(error.message())
        })))
    }
}
