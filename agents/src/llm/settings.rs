//! Settings of the LLM agent and of its tools.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chat_model::ModelSettings;
use crate::mcp_client::McpServerSettings;
use crate::redact;
use crate::supervisor::Supervisor;

/// Settings of the LLM agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LlmSettings {
    /// System prompt. It is not disclosed to callers.
    pub system: String,
    /// The model.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub model: ModelSettings,
    /// Number of earlier tasks of the conversation in the prompt.
    pub memory: usize,
    /// Maximum size of those tasks in the prompt. The newest ones have priority.
    #[serde(with = "ByteSize")]
    pub memory_size: usize,
    /// Maximum number of model calls with tool calls in one task. Then the task fails.
    pub max_steps: usize,
    /// Maximum number of tokens of one task, including those of delegates. Then the task fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// Maximum number of model calls of one task, including those of delegates. Then the task fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Whether callers see the reasoning of the model.
    pub show_reasoning: bool,
    /// Maximum number of agents in a chain of delegations, this one included.
    pub max_depth: u32,
    /// Tools of the model, by name.
    pub tools: BTreeMap<String, ToolSettings>,
    /// Supervisor of the processes of tools. `None`: they survive a server that is killed.
    #[serde(skip)]
    pub supervisor: Option<Supervisor>,
}

/// Settings of one tool, or of all tools of an MCP server. Exactly one of `command`, `http`, `agent`, `client` and `mcp`
/// must be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolSettings {
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments, an object. Default for `agent`: an object with a `message`.
    pub parameters: Map<String, Value>,
    /// Program and arguments. It reads the arguments of the call from stdin, as JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// URL that the arguments of the call are posted to, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// URL of another A2A agent. Each call is a task of that agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Whether the caller executes the tool. The task waits for its result.
    pub client: bool,
    /// MCP server. The model sees its tools as `<name>_<tool>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpServerSettings>,
    /// Additional request headers for `http` and `agent`, for example credentials.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Whether requests to `http` and `agent` name the authenticated caller and its tenant in `Attache-Caller` and
    /// `Attache-Tenant`.
    pub forward_caller: bool,
    /// Authenticated callers for which the tool may be called. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// Maximum number of questions that the agent may ask the caller in one call. Then its task is canceled.
    pub max_questions: usize,
    /// Whether the caller must approve every call.
    pub approval: bool,
    /// Whether a call that a restart interrupted may be repeated. Calls of `agent` are resumed instead.
    pub repeat: bool,
    /// Timeout of one call.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// Maximum size of a result in the prompt. Longer ones are truncated.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
}

impl Default for LlmSettings {
    fn default() -> Self {
        Self {
            system: String::new(),
            model: ModelSettings::default(),
            memory: 20,
            memory_size: 32 << 10,
            max_steps: 16,
            max_total_tokens: None,
            max_calls: None,
            show_reasoning: true,
            max_depth: 8,
            tools: BTreeMap::new(),
            supervisor: None,
        }
    }
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            description: String::new(),
            parameters: Map::new(),
            command: Vec::new(),
            http: None,
            agent: None,
            client: false,
            mcp: None,
            headers: BTreeMap::new(),
            forward_caller: false,
            callers: Vec::new(),
            max_questions: 8,
            approval: false,
            repeat: false,
            timeout: Duration::from_secs(120),
            max_output: 64 << 10,
        }
    }
}
