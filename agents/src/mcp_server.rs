//! Another face of agents: the tools of an MCP server, for editors and assistants.

mod http;
mod results;
mod tool_list;
mod tools;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use attache::model::{AgentCard, TaskId};
use attache::{Client, Error};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use tokio_util::sync::CancellationToken;

use tool_list::ToolAction;

/// How many tasks are remembered with whose they are; others are looked for.
const MAX_TASK_OWNERS: usize = 10_000;

/// What is told to whoever connects.
const INSTRUCTIONS: &str = "Each tool that is named after an agent gives that agent a message and waits for what comes of it. \
Work that takes longer comes back with a task id: wait for it, look at it, continue it or cancel it by that id, also \
later and from elsewhere.";

/// Offers agents as the tools of an MCP server: one for each, and four more for tasks that go on.
///
/// A tool waits for its agent, tells how the work goes to whoever wants to know, and comes back when the task ends, when
/// the agent asks something, or when it has waited long enough; from then on the task is reached by its id. A call that is
/// cancelled cancels its task.
#[derive(Debug, Clone)]
pub struct McpServer(Arc<McpServerInner>);

#[derive(Debug)]
struct McpServerInner {
    agents: Vec<ExposedAgent>,
    tools: Vec<(ToolAction, Tool)>,
    wait: Duration,
    /// Whose task is whose, by the place of the agent.
    task_owners: Mutex<HashMap<TaskId, usize>>,
}

/// An agent behind the face.
#[derive(Debug, Clone)]
pub struct ExposedAgent {
    /// What it is called; made into a name that models can say.
    pub name: String,
    /// What it says of itself.
    pub card: AgentCard,
    /// How it is reached.
    pub client: Client,
}

impl McpServer {
    /// A face of these agents. A call waits for so long.
    #[must_use]
    pub fn new(agents: Vec<ExposedAgent>, wait: Duration) -> Self {
        let tools = tool_list::tools(&agents);
        Self(Arc::new(McpServerInner {
            agents,
            tools,
            wait,
            task_owners: Mutex::default(),
        }))
    }

    /// Serves whoever is at the other end of stdin and stdout, until they leave or it is stopped.
    ///
    /// # Errors
    /// They do not speak MCP.
    pub async fn serve_stdio(self, stop: CancellationToken) -> io::Result<()> {
        let served = self
            .serve_with_ct(rmcp::transport::stdio_pipes(), stop)
            .await;
        match served {
            // Whoever leaves before they have said anything is free to.
            Err(
                rmcp::service::ServerInitializeError::Cancelled
                | rmcp::service::ServerInitializeError::ConnectionClosed(_),
            ) => Ok(()),
            Err(error) => Err(io::Error::other(error)),
            Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        }
    }

    /// Remembers whose task it is.
    fn record_owner(&self, task: &TaskId, agent: usize) {
        let mut task_owners = self
            .0
            .task_owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if task_owners.len() < MAX_TASK_OWNERS {
            task_owners.insert(task.clone(), agent);
        }
    }

    fn known_owner(&self, task: &TaskId) -> Option<usize> {
        self.0
            .task_owners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(task)
            .copied()
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let us = Implementation::new("attache", env!("CARGO_PKG_VERSION"));
        let can = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(can)
            .with_server_info(us)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.0.tools.iter().map(|(_, tool)| tool.clone()).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some((action, _)) = self
            .0
            .tools
            .iter()
            .find(|(_, tool)| tool.name == request.name)
        else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool `{}`", request.name),
                None,
            ));
        };
        let result = self
            .handle_call(*action, request.arguments.unwrap_or_default(), &context)
            .await;
        Ok(CallToolResponse::Complete(result.unwrap_or_else(|error| {
            results::error_result(&error_message(&error))
        })))
    }
}

fn error_message(error: &Error) -> String {
    error.message().to_owned()
}
