//! An agent that thinks, as a configuration file has it.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::chat_model::ModelSettings;
use crate::mcp_client::McpServerSettings;
use crate::redact;

/// A model, what it is told, and what it may do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LlmSettings {
    /// What the model is told before anything else. Callers never read it.
    pub system: String,
    /// The model that is asked.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub model: ModelSettings,
    /// How many earlier tasks of a conversation the model remembers.
    pub memory: usize,
    /// How much of them; the newest come first.
    #[serde(with = "ByteSize")]
    pub memory_size: usize,
    /// How often the model is asked for one task; then the task fails.
    pub max_steps: usize,
    /// How many tokens one task may cost, where models count them, those of other agents included; then the task fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// How often models may be asked for one task, those of other agents included; then the task fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Whether callers are told what the model thinks, where it says so.
    pub show_reasoning: bool,
    /// How many agents may stand behind each other in one piece of work, this one included.
    pub max_depth: u32,
    /// What the model may call, by name.
    pub tools: BTreeMap<String, ToolSettings>,
}

/// One tool, or all of an MCP server: exactly one of `command`, `http`, `agent`, `client` and `mcp` says what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolSettings {
    /// What it does, for the model.
    pub description: String,
    /// What it takes: a JSON Schema of an object. For an agent, a `message` if left out.
    pub parameters: Map<String, Value>,
    /// A program and its arguments; it reads the arguments of the call from stdin, as JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// A url that the arguments of the call are posted to, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// The url of another agent, which is given the work as a task of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The caller does it: the task waits for their result.
    pub client: bool,
    /// An MCP server, whose tools are `<name>_<tool>` for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpServerSettings>,
    /// Headers that go along to `http` and `agent`, credentials among them.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Tells `http` and `agent` who calls, as authentication knows them, in `Attache-Caller` and `Attache-Tenant`.
    pub forward_caller: bool,
    /// The callers for whom it may be called, as authentication knows them; all if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// How many questions another agent may ask the caller in one call; then it is stopped.
    pub max_questions: usize,
    /// Whether the caller must agree to every call.
    pub approval: bool,
    /// Whether a call that was cut off by a restart may be made again. One of another agent is followed, not repeated.
    pub repeat: bool,
    /// How long a call may take.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// How much of a result the model reads.
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
