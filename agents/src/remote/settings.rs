//! Settings of the remote agent.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::FileEncoding;
use attache::model::units::HumanDuration;
use attache::model::{Binding, Secret, Version};
use serde::{Deserialize, Serialize};

use crate::redact;

/// Settings of the remote agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemoteSettings {
    /// URL of the agent or of its card.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub url: String,
    /// Binding to use. Default: the first binding on the card that Attache supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<RemoteBinding>,
    /// Protocol version to use. Default: the newest version that both sides support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a2a_version: Option<RemoteVersion>,
    /// Additional request headers, for example credentials.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Other origins (`https://host:port`) that may receive the headers if the card names them.
    pub trust: Vec<String>,
    /// Required fingerprint of the card (`sha256:…`), as logged when the card is read. The agent is not called with
    /// another card. Default: any card is accepted, and changes are logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Whether calls name the authenticated caller and its tenant in `Attache-Caller` and `Attache-Tenant`.
    pub forward_caller: bool,
    /// Timeout of one turn, after which the remote task is canceled.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// Idle timeout of a stream, after which it is reopened.
    #[serde(with = "HumanDuration")]
    pub max_silence: Duration,
    /// Maximum number of consecutive retries of a call that did not reach the agent, or that may be repeated.
    pub retries: u32,
    /// Whether the agent detects repeated messages by their `Idempotency-Key`, as Attache does.
    pub idempotent: bool,
    /// Model name for endpoints that offer only OpenAI chat completions. Default: such an endpoint is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_completions: Option<String>,
    /// Content of files over gRPC and HTTP+JSON of 0.3. Default: decided by the server software of the agent.
    pub v03_files: RemoteFileEncoding,
    /// Maximum number of agents in a chain of delegations, this one included.
    pub max_depth: u32,
    /// Number of consecutive failures after which the circuit breaker opens for `breaker_pause`; 0 disables it.
    pub breaker_failures: u32,
    /// Time during which an open circuit breaker refuses calls.
    #[serde(with = "HumanDuration")]
    pub breaker_pause: Duration,
}

/// Protocol binding, as named in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RemoteBinding {
    /// JSON-RPC.
    Jsonrpc,
    /// HTTP+JSON.
    Rest,
    /// gRPC.
    Grpc,
}

/// Protocol version, as named in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RemoteVersion {
    /// 0.3 and older.
    #[serde(rename = "0.3")]
    V03,
    /// 1.0.
    #[serde(rename = "1.0")]
    V1,
}

/// Content of files over the protobuf forms of 0.3, as named in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RemoteFileEncoding {
    /// Base64 text for agents written in Python, else bytes.
    #[default]
    Auto,
    /// Bytes.
    Raw,
    /// Base64 text, as the Python SDKs expect.
    Base64,
}

impl From<RemoteFileEncoding> for FileEncoding {
    fn from(encoding: RemoteFileEncoding) -> Self {
        match encoding {
            RemoteFileEncoding::Auto => Self::Auto,
            RemoteFileEncoding::Raw => Self::Raw,
            RemoteFileEncoding::Base64 => Self::Base64,
        }
    }
}

impl From<RemoteBinding> for Binding {
    fn from(binding: RemoteBinding) -> Self {
        match binding {
            RemoteBinding::Jsonrpc => Self::JsonRpc,
            RemoteBinding::Rest => Self::HttpJson,
            RemoteBinding::Grpc => Self::Grpc,
        }
    }
}

impl From<RemoteVersion> for Version {
    fn from(version: RemoteVersion) -> Self {
        match version {
            RemoteVersion::V03 => Self::V03,
            RemoteVersion::V1 => Self::V1,
        }
    }
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            binding: None,
            a2a_version: None,
            headers: BTreeMap::new(),
            trust: Vec::new(),
            pin: None,
            forward_caller: false,
            timeout: Duration::from_secs(600),
            max_silence: Duration::from_secs(300),
            retries: 4,
            idempotent: false,
            chat_completions: None,
            v03_files: RemoteFileEncoding::Auto,
            max_depth: 16,
            breaker_failures: 5,
            breaker_pause: Duration::from_secs(30),
        }
    }
}
