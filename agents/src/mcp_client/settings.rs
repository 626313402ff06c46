//! An MCP server, and an agent that is one, as a configuration file has them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::redact;

/// An MCP server: exactly one of `command` and `url` says where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpServerSettings {
    /// A program and its arguments; it is started when it is first needed, and speaks MCP over stdin and stdout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The folder it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Variables of our environment that it sees, beside those that it needs to find programs and files.
    pub pass_env: Vec<String>,
    /// Variables that it sees besides.
    #[serde(serialize_with = "redact::map")]
    pub env: BTreeMap<String, Secret>,
    /// Where it is reached over streamable HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers that go along to `url`, credentials among them.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// The tools that are used, by the server's names for them; all if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Those of them to whose every call the caller must agree. For tools of a model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approve: Vec<String>,
    /// What the tools must be, as the log says it when it tells of them: with others the server is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// How long it may take to start, or to connect, and to say what tools it has.
    #[serde(with = "HumanDuration")]
    pub connect_timeout: Duration,
    /// How many tools it may have; with more it is not used.
    pub max_tools: usize,
    /// How large one message of it may be.
    #[serde(with = "ByteSize")]
    pub max_message: usize,
}

/// An agent whose skills are the tools of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpSettings {
    /// The server.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub server: McpServerSettings,
    /// How long a call may take.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// Whether a message has to name the skill that it calls in `metadata.skillId` too. Where a rule says who may use a skill it
    /// has to: rules read nothing else.
    pub named_skills: bool,
}

impl Default for McpServerSettings {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            folder: None,
            pass_env: Vec::new(),
            env: BTreeMap::new(),
            url: None,
            headers: BTreeMap::new(),
            tools: Vec::new(),
            approve: Vec::new(),
            pin: None,
            connect_timeout: Duration::from_secs(30),
            max_tools: 128,
            max_message: 4 << 20,
        }
    }
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            server: McpServerSettings::default(),
            timeout: Duration::from_secs(300),
            named_skills: false,
        }
    }
}
