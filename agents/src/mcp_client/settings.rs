//! Settings of MCP servers and of the MCP agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::redact;
use crate::supervisor::Supervisor;

/// Settings of an MCP server. Exactly one of `command` and `url` must be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpServerSettings {
    /// Program and arguments. It is started at its first use, and speaks MCP over stdin and stdout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Working directory of the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Variables of the server's environment that the program receives, in addition to `PATH`, `HOME` and similar ones.
    pub pass_env: Vec<String>,
    /// Additional environment variables.
    #[serde(serialize_with = "redact::map")]
    pub env: BTreeMap<String, Secret>,
    /// URL of the streamable HTTP endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Additional request headers for `url`, for example credentials.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Names of the tools to use. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Names of the tools whose calls the caller must approve. For tools of a model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approve: Vec<String>,
    /// Required fingerprint of the tool list (`sha256:…`), as logged when the list is read. The server is not used with
    /// another list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Timeout for starting or connecting and for listing the tools.
    #[serde(with = "HumanDuration")]
    pub connect_timeout: Duration,
    /// Maximum number of tools. A server with more is not used.
    pub max_tools: usize,
    /// Maximum size of one message from the server.
    #[serde(with = "ByteSize")]
    pub max_message: usize,
    /// Supervisor of the program. `None`: it survives a server that is killed, if it does not watch its stdin.
    #[serde(skip)]
    pub supervisor: Option<Supervisor>,
}

/// Settings of the MCP agent, whose skills are the tools of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct McpSettings {
    /// The MCP server.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub server: McpServerSettings,
    /// Timeout of one call.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// Whether a message must also name its skill in `metadata.skillId`. Required for access rules about skills, because they
    /// read only that key.
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
            supervisor: None,
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
