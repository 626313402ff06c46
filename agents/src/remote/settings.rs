//! How another agent is called, as a configuration file has it.

use std::collections::BTreeMap;
use std::time::Duration;

use attache::model::units::HumanDuration;
use attache::model::{Binding, Secret, Version};
use serde::{Deserialize, Serialize};

use crate::redact;

/// How another agent is called for every turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemoteSettings {
    /// Where the agent is, or its card.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub url: String,
    /// Speaks to it over this binding and no other; if left out, over the first on its card that we speak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<RemoteBinding>,
    /// Speaks this version and no other; if left out, the newest that both know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<RemoteVersion>,
    /// Headers that go along, credentials among them.
    #[serde(serialize_with = "redact::map")]
    pub headers: BTreeMap<String, Secret>,
    /// Other origins (`https://host:port`) that the headers may go to, where the card leads there.
    pub trust: Vec<String>,
    /// What its card must be: the log says it when the card is read (`sha256:…`). With another card the agent is not called; if
    /// left out, a card that changes is told in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// Tells the agent who calls, as authentication knows them, in `Attache-Caller` and `Attache-Tenant`.
    pub forward_caller: bool,
    /// How long one turn may take; then the agent is asked to stop.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// How long a stream may be silent before it counts as cut and is opened again.
    #[serde(with = "HumanDuration")]
    pub max_silence: Duration,
    /// How often in a row something is tried again that surely did not arrive, or may be asked twice.
    pub retries: u32,
    /// Whether the agent knows a message that comes twice by its `Idempotency-Key`, as Attache does.
    pub idempotent: bool,
    /// The model to ask for where there is no agent but something that completes chats; if left out, that is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_completions: Option<String>,
    /// How many agents may stand behind each other in one piece of work, this one included.
    pub max_depth: u32,
    /// After so many failures in a row the agent is left alone for `breaker_pause`; never with 0.
    pub breaker_failures: u32,
    /// How long an agent that fails is left alone.
    #[serde(with = "HumanDuration")]
    pub breaker_pause: Duration,
}

/// A binding, as a file names it.
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

/// A version, as a file names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RemoteVersion {
    /// 0.3, and what is older.
    #[serde(rename = "0.3")]
    V03,
    /// 1.0.
    #[serde(rename = "1.0")]
    V1,
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
            version: None,
            headers: BTreeMap::new(),
            trust: Vec::new(),
            pin: None,
            forward_caller: false,
            timeout: Duration::from_secs(600),
            max_silence: Duration::from_secs(300),
            retries: 4,
            idempotent: false,
            chat_completions: None,
            max_depth: 16,
            breaker_failures: 5,
            breaker_pause: Duration::from_secs(30),
        }
    }
}
