//! Versions, bindings and operations: the closed sets of the protocol.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of A2A as it is written on the wire. 0.1 and 0.2 are read, and answered as 0.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 0.2.x and 0.3: `kind` members, lower-case enums, bare results.
    V03,
    /// 1.0: the JSON of one protobuf file.
    V1,
}

impl Version {
    /// Every version, newest first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V03];

    /// Whether requests may name a tenant.
    #[must_use]
    pub fn has_tenants(self) -> bool {
        match self {
            Self::V03 => false,
            Self::V1 => true,
        }
    }

    /// `major.minor`, as headers and interfaces carry it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V03 => "0.3",
            Self::V1 => "1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How operations travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// HTTP+JSON, also called REST.
    HttpJson,
    /// gRPC.
    Grpc,
}

impl Binding {
    /// Every binding, in the order our cards prefer them.
    pub const ALL: [Self; 3] = [Self::JsonRpc, Self::HttpJson, Self::Grpc];

    /// The name that cards use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }

    /// Reads the name of a binding in any case; `None` for a binding we do not know.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|binding| binding.as_str().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The eleven operations of A2A. In settings they are written `send_message`, `get_task` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Operation {
    /// Sends a message and waits for the answer.
    SendMessage,
    /// Sends a message and streams what happens.
    SendStreamingMessage,
    /// Reads a task.
    GetTask,
    /// Lists tasks by page.
    ListTasks,
    /// Asks for a task to be canceled.
    CancelTask,
    /// Streams what happens to an existing task.
    SubscribeToTask,
    /// Registers a webhook for a task.
    CreatePushConfig,
    /// Reads a webhook registration.
    GetPushConfig,
    /// Lists the webhook registrations of a task.
    ListPushConfigs,
    /// Removes a webhook registration.
    DeletePushConfig,
    /// Reads the card that authenticated callers see.
    GetExtendedAgentCard,
}

impl Operation {
    /// Every operation, in the protocol's order.
    pub const ALL: [Self; 11] = [
        Self::SendMessage,
        Self::SendStreamingMessage,
        Self::GetTask,
        Self::ListTasks,
        Self::CancelTask,
        Self::SubscribeToTask,
        Self::CreatePushConfig,
        Self::GetPushConfig,
        Self::ListPushConfigs,
        Self::DeletePushConfig,
        Self::GetExtendedAgentCard,
    ];

    /// Whether the answer is a stream of events.
    #[must_use]
    pub fn is_streaming(self) -> bool {
        matches!(self, Self::SendStreamingMessage | Self::SubscribeToTask)
    }
}
