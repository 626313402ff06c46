//! Agent that answers with a language model, which may call tools.
//!
//! [`LlmTurn`] is the loop of one turn: run the open tool calls, then ask the model, until it calls no more tools. Every
//! step is a status update in the log of the task, so a restarted turn continues from the log (`history`). `open_calls`
//! derives the calls without a result, `call_runner` executes them, and [`Toolset`] has the tools.

mod call_runner;
mod caller_question;
mod delegate;
mod history;
mod llm_turn;
mod open_calls;
mod prompt;
mod settings;
mod spans;
mod tool;
mod toolset;
mod untrusted_text;

use std::fmt;
use std::sync::Arc;

use attache::jws::Signer;
use attache::model::{AgentSkill, MessageId, Task};
use attache::{Agent, Failure, Outcome, Turn};
use tokio::time::timeout;

use crate::chat_model::ChatModel;
use crate::lineage::Lineage;
use llm_turn::LlmTurn;
use open_calls::OpenCalls;
pub use settings::{LlmSettings, ToolSettings};
use tool::{Tool, ToolKind};
use toolset::{McpToolServer, Toolset};
pub(crate) use untrusted_text::{UNTRUSTED_DATA_RULE, fence, sanitize};

/// Agent that answers with a language model behind a chat completion endpoint, and calls tools for it.
///
/// The answer streams into the artifact `answer`. Reasoning, tool calls and their results are status updates with typed
/// data parts, and are in the log of the task. After a restart the turn continues from the log: a call with a result is
/// not repeated, and one without is repeated only if its settings allow it. The cost of the task is in the metadata of
/// the task under `attache.usage`.
///
/// ```
/// use attache_agents::{LlmAgent, LlmSettings, ModelSettings};
/// let model = ModelSettings {
///     url: "http://127.0.0.1:11434/v1".to_owned(),
///     name: "qwen3".to_owned(),
///     ..ModelSettings::default()
/// };
/// let agent = LlmAgent::new(LlmSettings { model, system: "Be brief.".to_owned(), ..LlmSettings::default() })?;
/// # Ok::<(), attache_agents::LlmSettingsError>(())
/// ```
#[derive(Debug)]
pub struct LlmAgent {
    settings: LlmSettings,
    model: ChatModel,
    tools: Vec<Arc<Tool>>,
    /// MCP servers, whose tools are listed when they are needed.
    servers: Vec<McpToolServer>,
    /// Random id of this agent in lineages.
    agent_id: MessageId,
}

/// Error for invalid settings of an [`LlmAgent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmSettingsError {
    /// Invalid key.
    pub key: &'static str,
    reason: String,
}

impl LlmAgent {
    /// Creates an agent. Does not connect to the model or to tools.
    ///
    /// # Errors
    /// The settings of the model or of a tool are invalid.
    pub fn new(settings: LlmSettings) -> Result<Self, LlmSettingsError> {
        let invalid = |key| move |reason| LlmSettingsError { key, reason };
        let model =
            ChatModel::new(settings.model.clone()).map_err(|error| invalid("model")(error.0))?;
        let mut tools = Vec::new();
        let mut servers = Vec::new();
        for (name, tool) in &settings.tools {
            Tool::check(name, tool).map_err(invalid("tools"))?;
            match &tool.mcp {
                Some(server) => {
                    let mut server = server.clone();
                    if server.supervisor.is_none() {
                        server.supervisor.clone_from(&settings.supervisor);
                    }
                    let server = McpToolServer::new(name, tool, server);
                    servers.push(server.map_err(invalid("tools"))?);
                }
                None => {
                    let tool = Tool::new(name, tool.clone(), settings.supervisor.as_ref())
                        .map_err(invalid("tools"))?;
                    tools.push(Arc::new(tool));
                }
            }
        }
        Ok(Self {
            settings,
            model,
            tools,
            servers,
            agent_id: MessageId::random(),
        })
    }

    /// Returns one skill for each configured tool, for the agent card. Tools of MCP servers are not among them.
    #[must_use]
    pub fn configured_skills(&self) -> Vec<AgentSkill> {
        self.tools.iter().map(|tool| tool.skill()).collect()
    }

    /// Returns one skill for each tool, for the agent card. Connects to MCP servers.
    ///
    /// # Errors
    /// An MCP server is not available.
    pub async fn skills(&self) -> Result<Vec<AgentSkill>, String> {
        Ok(Toolset::new(&self.tools, &self.servers).await?.skills())
    }

    /// Signs delegation tokens that name the caller, for tools with `agent` and `forward_caller`.
    ///
    /// The other server accepts them if it [trusts our delegation](attache::auth::Access::trust_delegation).
    #[must_use]
    pub fn with_signer(mut self, signer: &Signer) -> Self {
        // `get_mut` succeeds, because no turn shares the tools yet.
        for tool in self.tools.iter_mut().filter_map(Arc::get_mut) {
            if let ToolKind::Agent(delegate) = &mut tool.kind {
                delegate.set_signer(signer.clone());
            }
        }
        self
    }
}

impl Agent for LlmAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let lineage = Lineage::from_turn(&turn);
        if let Some(reason) = lineage.cycle_refusal(&self.agent_id) {
            return Ok(Outcome::rejected(reason));
        }
        let granted = lineage.budget();
        let mut llm_turn = LlmTurn::new(self, &turn, granted).await;
        let outcome = match granted.time {
            // Dropping the turn at the timeout also cancels the tasks of delegates.
            Some(time) => timeout(time, llm_turn.run()).await.unwrap_or_else(|_| {
                Outcome::failed(format!(
                    "the task took longer than the caller allows: {time:?}"
                ))
            }),
            None => llm_turn.run().await,
        };
        turn.add_metadata(llm_turn.usage_metadata()).await;
        Ok(outcome)
    }

    /// Cancels the tasks of delegates that work on open calls.
    async fn on_canceled(&self, task: &Task) {
        let history = history::read_history(task);
        for open in OpenCalls::from_history(&history).calls {
            let tool = self.tools.iter().find(|tool| tool.name == open.call.name);
            if let Some(ToolKind::Agent(delegate)) = tool.map(|tool| &tool.kind)
                && let Some(id) = &open.delegate_task
                && let Err(error) = delegate.cancel(id, open.caller.as_deref()).await
            {
                tracing::debug!(task = %task.id, error, "the delegate did not cancel its task");
            }
        }
    }

    /// Returns whether a tool must not be called twice for one turn.
    fn needs_durable_start(&self) -> bool {
        let tools = self.tools.iter().map(|tool| tool.settings.repeat);
        let servers = self.servers.iter().map(McpToolServer::is_repeatable);
        !tools.chain(servers).all(|is_repeatable| is_repeatable)
    }
}

impl fmt::Display for LlmSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for LlmSettingsError {}
