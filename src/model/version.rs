//! Protocol versions, bindings and operations.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Protocol version on the wire. Requests of 0.1 and 0.2 are read and answered as 0.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// Versions 0.2 and 0.3: `kind` members, lower-case enums, bare results.
    V03,
    /// Version 1.0: the ProtoJSON of one protobuf file.
    V1,
}

impl Version {
    /// All versions, newest first.
    pub const ALL: [Self; 2] = [Self::V1, Self::V03];

    /// Whether requests may name a tenant.
    #[must_use]
    pub fn has_tenants(self) -> bool {
        match self {
            Self::V03 => false,
            Self::V1 => true,
        }
    }

    /// Whether clients may have shown that they read the parts `tool-use` and `tool-result` (09, 2.9).
    #[must_use]
    pub fn has_tool_parts(self) -> bool {
        match self {
            Self::V03 => true,
            Self::V1 => false,
        }
    }

    /// Returns `major.minor`, as used in headers and interfaces.
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

/// Protocol binding.
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
    /// All bindings, in the order of preference on generated cards.
    pub const ALL: [Self; 3] = [Self::JsonRpc, Self::HttpJson, Self::Grpc];

    /// Returns the name used on cards.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }

    /// Parses the name of a binding, ignoring case; `None` if it is unknown.
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

/// The eleven operations of A2A. Settings use the snake_case names, such as `send_message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Operation {
    /// Sends a message and waits for the result.
    SendMessage,
    /// Sends a message and streams the events of the task.
    SendStreamingMessage,
    /// Reads a task.
    GetTask,
    /// Lists tasks, page by page.
    ListTasks,
    /// Requests cancellation of a task.
    CancelTask,
    /// Streams the events of an existing task.
    SubscribeToTask,
    /// Registers a webhook for a task.
    CreatePushConfig,
    /// Reads a push configuration.
    GetPushConfig,
    /// Lists the push configurations of a task.
    ListPushConfigs,
    /// Deletes a push configuration.
    DeletePushConfig,
    /// Reads the card for authenticated callers.
    GetExtendedAgentCard,
}

impl Operation {
    /// All operations, in the order of the specification.
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

    /// Whether the response is a stream of events.
    #[must_use]
    pub fn is_streaming(self) -> bool {
        matches!(self, Self::SendStreamingMessage | Self::SubscribeToTask)
    }
}
