//! How it is written: bytes to model and back, for every version and binding. The only room that behaves by version.

mod aside;
pub mod card;
pub mod chat;
pub mod decide;
pub mod errors;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod header;
pub mod json;
pub mod jsonrpc;
pub mod method;
mod part;
pub mod path;
#[cfg(feature = "grpc")]
mod proto;
#[cfg(feature = "grpc")]
pub mod proto_v03;
#[cfg(feature = "grpc")]
pub mod proto_v1;
mod query;
pub mod quick;
mod reply;
mod request;
mod response;
mod spelling;
pub mod sse;
mod straight;
mod strict;
mod update;
mod v03;
mod v1;

use crate::model::{Response, TaskId, Version};

#[cfg(feature = "grpc")]
pub use grpc::{read_grpc, write_grpc, write_grpc_event};
pub use part::tells_of_tools;
pub use reply::{peers_fault, read_event, read_jsonrpc_event, read_reply, read_rest_event};
pub use request::{RestRequest, read_params, read_rest, write_params, write_rest};
pub use response::{
    A2A_JSON, Carries, carries, refuses_in_stream, rest_type, write_body, write_event,
    write_failure, write_result, write_task,
};

pub use update::Updates;

#[cfg(feature = "grpc")]
use request::not_in_v03;

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
    pub fn by_name(self, asked: Option<TaskId>, response: &Response) -> Self {
        match response {
            Response::Task(task) => self.by_name_of(asked, &task.id),
            _ => self,
        }
    }

    /// The same where the answer is the task of this id.
    #[must_use]
    pub fn by_name_of(self, asked: Option<TaskId>, id: &TaskId) -> Self {
        match (self, asked) {
            (Self::V03, Some(asked)) if *id != asked => Self::V01 { alias: Some(asked) },
            (dialect, _) => dialect,
        }
    }

    /// What REST speaks in a version.
    #[must_use]
    pub fn rest(version: Version) -> Self {
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
pub fn write<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("our types have string keys and a vector takes every byte");
}
