//! Codecs: bytes to model and back, for every protocol version and binding.
//!
//! This is the only module that branches on the protocol version. Readers are lenient and accept
//! every known dialect; writers produce exactly the negotiated version.
//!
//! - [`negotiation`]: determines the version of a request.
//! - [`jsonrpc`], [`path`], `grpc`: envelopes and routes of the bindings.
//! - `request`, `read_response`, `write_response`: operations in JSON.
//! - `kaos`, `fasta2a`: dialects of these projects.
//! - `v1`, `v03`: shapes of the JSON versions; `proto_v1`, `proto_v03`: conversions of the protobuf
//!   messages.
//! - [`fast`]: fast paths for the most frequent requests and responses of 1.0.
//! - [`card`], [`errors`], [`sse`], [`openai`]: agent cards, error tables, server-sent events,
//!   OpenAI chat completions.

pub mod card;
pub mod errors;
pub mod fast;
mod fasta2a;
#[cfg(any(feature = "client", feature = "server"))]
pub(crate) mod file_encoding;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod header;
pub mod json;
pub mod jsonrpc;
mod kaos;
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
mod v03_rest_form;
mod v1;
mod write_response;

use crate::model::{ClientDialect, Response, SendMessageResponse, Task, TaskId, Version};

#[cfg(feature = "grpc")]
pub use grpc::{read_grpc, write_grpc, write_grpc_event, write_grpc_task};
pub use kaos::{may_have_kaos_marks, write_kaos_call};
pub use read_response::{
    into_invalid_agent_response, read_event, read_jsonrpc_event, read_response, read_rest_event,
};
pub use request::{
    RestRequest, read_params, read_rest, read_unversioned_params, write_params, write_rest,
};
pub use write_response::{
    A2A_JSON, PushPayload, push_payload, rejects_in_stream, rest_content_type, task_event_envelope,
    write_body, write_event, write_result, write_stream_error, write_task,
};

pub use fast::StreamEventWriter;
pub use v03_rest_form::V03RestForm;

#[cfg(feature = "grpc")]
use request::list_tasks_unsupported;

/// JSON dialect of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dialect {
    /// 1.0, on every JSON binding.
    V1,
    /// 0.3 on JSON-RPC: bare objects with `kind`.
    V03,
    /// 0.3 on JSON-RPC for clients that run tools: requests for tool calls and their results are parts
    /// of the kinds `tool-use` and `tool-result`.
    V03Tools,
    /// 0.3 on JSON-RPC for clients that add `headers` to a push configuration: the reply has `success`.
    V03PushSuccess,
    /// fasta2a: a call of 0.3 with the wrappers and parts of 1.0, and the states and roles of 0.3.
    Fasta2a,
    /// KAOS: a call of 1.0 with a bare task, whose answer is in its history (09, 0.9).
    Kaos,
    /// 0.3 on REST: the ProtoJSON of its protobuf file.
    V03Rest,
    /// 0.3 plus the members that 0.1 clients expect (04 §4).
    V01 {
        /// Task id chosen by the client.
        alias: Option<TaskId>,
    },
}

impl Dialect {
    /// Returns the protocol version of the dialect.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::V1 | Self::Kaos => Version::V1,
            Self::V03
            | Self::V03Tools
            | Self::V03PushSuccess
            | Self::Fasta2a
            | Self::V03Rest
            | Self::V01 { .. } => Version::V03,
        }
    }

    /// Returns the dialect of a response about a task. Earlier messages of its client may have shown that
    /// it understands a special form.
    #[must_use]
    pub fn for_task(self, task: &Task) -> Self {
        match self {
            Self::V03 => self.with_client_dialect(task.client_dialect()),
            Self::V1
            | Self::V03Tools
            | Self::V03PushSuccess
            | Self::Fasta2a
            | Self::Kaos
            | Self::V03Rest
            | Self::V01 { .. } => self,
        }
    }

    /// Returns the dialect of a response to a request without a version: 1.0 becomes KAOS if the task has a
    /// message of a KAOS client.
    #[must_use]
    pub fn for_unversioned_task(self, task: &Task) -> Self {
        match self {
            Self::V1 if task.client_dialect() == Some(ClientDialect::Kaos) => Self::Kaos,
            dialect => dialect,
        }
    }

    /// Like [`for_task`](Self::for_task), for a response that may have no task.
    #[must_use]
    pub fn for_response(self, response: &Response) -> Self {
        match response {
            Response::Task(task) | Response::SendMessage(SendMessageResponse::Task(task)) => {
                self.for_task(task)
            }
            _ => self,
        }
    }

    /// Returns the dialect for a client with a dialect of its own.
    #[must_use]
    pub fn with_client_dialect(self, client: Option<ClientDialect>) -> Self {
        match (self, client) {
            (Self::V03, Some(ClientDialect::Tools)) => Self::V03Tools,
            (dialect, _) => dialect,
        }
    }

    /// Returns the dialect for a response to a request for task `requested`. An id other than the
    /// task's own is the alias of a 0.1 client, which the response uses as the id (04 §4).
    #[must_use]
    pub fn with_alias_in_response(self, requested: Option<TaskId>, response: &Response) -> Self {
        match response {
            Response::Task(task) => self.with_alias(requested, &task.id),
            _ => self,
        }
    }

    /// Like [`with_alias_in_response`](Self::with_alias_in_response), for a response that is the
    /// task `id`.
    #[must_use]
    pub fn with_alias(self, requested: Option<TaskId>, id: &TaskId) -> Self {
        match (self, requested) {
            (Self::V03, Some(requested)) if *id != requested => Self::V01 {
                alias: Some(requested),
            },
            (dialect, _) => dialect,
        }
    }

    /// Returns the REST dialect of a version.
    #[must_use]
    pub fn for_rest(version: Version) -> Self {
        match version {
            Version::V1 => Self::V1,
            Version::V03 => Self::V03Rest,
        }
    }
}

impl From<Version> for Dialect {
    /// Returns the JSON-RPC dialect of a version.
    fn from(version: Version) -> Self {
        match version {
            Version::V1 => Self::V1,
            Version::V03 => Self::V03,
        }
    }
}

/// Appends a value as JSON.
pub fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("the types have string keys and a Vec grows as needed");
}
