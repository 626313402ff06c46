//! How it is written: bytes to model and back, for every version and binding. The only room that behaves by version.

pub mod card;
pub mod errors;
pub mod fast;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod header;
pub mod json;
pub mod jsonrpc;
mod lenient;
pub mod method;
pub mod negotiation;
pub mod openai;
mod part;
pub mod path;
#[cfg(feature = "grpc")]
mod proto;
#[cfg(feature = "grpc")]
pub mod proto_v03;
#[cfg(feature = "grpc")]
pub mod proto_v1;
mod query;
mod read_response;
mod request;
pub mod sse;
mod strict;
mod v03;
mod v1;
mod write_response;

use crate::model::{Response, TaskId, Version};

#[cfg(feature = "grpc")]
pub use grpc::{read_grpc, write_grpc, write_grpc_event};
pub use part::has_tool_parts;
pub use read_response::{
    into_invalid_agent_response, read_event, read_jsonrpc_event, read_response, read_rest_event,
};
pub use request::{RestRequest, read_params, read_rest, write_params, write_rest};
pub use write_response::{
    A2A_JSON, PushPayload, push_payload, rejects_in_stream, rest_content_type, write_body,
    write_event, write_result, write_stream_error, write_task,
};

pub use fast::StreamEventWriter;

#[cfg(feature = "grpc")]
use request::list_tasks_unsupported;

/// A way of writing that a caller understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// 1.0, on every JSON binding.
    V1,
    /// 0.3 as in JSON-RPC: bare objects with `kind`.
    V03,
    /// The same for clients that run tools for an agent: what it asks them stands as `inputRequest` in its message.
    V03Tools,
    /// 0.3 as in REST: the ProtoJSON of its protobuf file.
    V03Rest,
    /// 0.3, with what clients of 0.1 look for beside it.
    V01 {
        /// The name that the client gave the task.
        alias: Option<TaskId>,
    },
}

impl Dialect {
    /// The version whose rules hold.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::V1 => Version::V1,
            Self::V03 | Self::V03Tools | Self::V03Rest | Self::V01 { .. } => Version::V03,
        }
    }

    /// The same for a client that runs tools, where it has another way to read what it is asked.
    #[must_use]
    pub fn with_tools(self) -> Self {
        match self {
            Self::V03 => Self::V03Tools,
            other @ (Self::V1 | Self::V03Tools | Self::V03Rest | Self::V01 { .. }) => other,
        }
    }

    /// The same for whoever asked for a task by this name. One that is not its id was given by a client of 0.1, which is
    /// answered by it (04 §4).
    #[must_use]
    pub fn with_alias_in_response(self, requested: Option<TaskId>, response: &Response) -> Self {
        match response {
            Response::Task(task) => self.with_alias(requested, &task.id),
            _ => self,
        }
    }

    /// The same where the answer is the task of this id.
    #[must_use]
    pub fn with_alias(self, requested: Option<TaskId>, id: &TaskId) -> Self {
        match (self, requested) {
            (Self::V03, Some(requested)) if *id != requested => Self::V01 {
                alias: Some(requested),
            },
            (dialect, _) => dialect,
        }
    }

    /// What REST speaks in a version.
    #[must_use]
    pub fn for_rest(version: Version) -> Self {
        match version {
            Version::V1 => Self::V1,
            Version::V03 => Self::V03Rest,
        }
    }
}

impl From<Version> for Dialect {
    /// What JSON-RPC speaks in a version.
    fn from(version: Version) -> Self {
        match version {
            Version::V1 => Self::V1,
            Version::V03 => Self::V03,
        }
    }
}

/// Writes JSON.
pub fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("our types have string keys and a vector takes every byte");
}
