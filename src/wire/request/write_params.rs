//! Writing the params of JSON-RPC calls.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::model::{
    CancelTaskRequest, DeletePushConfigRequest, Error, ErrorKind, GetPushConfigRequest,
    GetTaskRequest, ListPushConfigsRequest, PushConfigId, Request, SendMessageConfiguration,
    SendMessageRequest, SubscribeToTaskRequest, TaskId, Version,
};
use crate::wire::v03::{Age, V03, some_history, write_configuration};
use crate::wire::write;

/// Writes the params of a JSON-RPC call as a client of this version.
///
/// # Errors
/// Unsupported: 0.3 cannot list tasks.
pub fn write_params(out: &mut Vec<u8>, request: &Request, version: Version) -> Result<(), Error> {
    match version {
        Version::V1 => write_v1(out, request),
        Version::V03 => return write_v03(out, request),
    }
    Ok(())
}

fn write_v1(out: &mut Vec<u8>, request: &Request) {
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            write(out, request)
        }
        Request::GetTask(request) => write(out, request),
        Request::ListTasks(request) => write(out, request),
        Request::CancelTask(request) => write(out, request),
        Request::SubscribeToTask(request) => write(out, request),
        Request::CreatePushConfig(config) => write(out, config),
        Request::GetPushConfig(request) => write(out, request),
        Request::ListPushConfigs(request) => write(out, request),
        Request::DeletePushConfig(request) => write(out, request),
        Request::GetExtendedAgentCard(request) => write(out, request),
    }
}

pub(in crate::wire) fn not_in_v03() -> Error {
    Error::new(ErrorKind::UnsupportedOperation)
        .with_message("This operation is not supported: A2A 0.3 cannot list tasks")
}

fn write_v03(out: &mut Vec<u8>, request: &Request) -> Result<(), Error> {
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            write(out, &SendOut(request))
        }
        Request::GetTask(GetTaskRequest {
            id, history_length, ..
        }) => {
            write(
                out,
                &IdOut {
                    id,
                    history_length: some_history(*history_length),
                    config: None,
                    metadata: None,
                },
            );
        }
        Request::ListTasks(_) => return Err(not_in_v03()),
        Request::CancelTask(CancelTaskRequest { id, metadata, .. }) => {
            write(
                out,
                &IdOut {
                    id,
                    history_length: None,
                    config: None,
                    metadata: metadata.as_ref(),
                },
            );
        }
        Request::SubscribeToTask(SubscribeToTaskRequest { id, .. }) => write(out, &IdOut::new(id)),
        Request::CreatePushConfig(config) => write(out, &V03(&**config, Age::Today)),
        Request::GetPushConfig(GetPushConfigRequest { task_id, id, .. }) => {
            write(
                out,
                &IdOut {
                    config: id.as_ref(),
                    ..IdOut::new(task_id)
                },
            );
        }
        Request::ListPushConfigs(ListPushConfigsRequest { task_id, .. }) => {
            write(out, &IdOut::new(task_id))
        }
        Request::DeletePushConfig(DeletePushConfigRequest { task_id, id, .. }) => {
            write(
                out,
                &IdOut {
                    config: Some(id),
                    ..IdOut::new(task_id)
                },
            );
        }
        Request::GetExtendedAgentCard(_) => out.extend_from_slice(b"{}"),
    }
    Ok(())
}

/// What `message/send` takes.
struct SendOut<'a>(&'a SendMessageRequest);

impl Serialize for SendOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Configuration<'a>(&'a SendMessageConfiguration);
        impl Serialize for Configuration<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                write_configuration(self.0, serializer)
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message", &V03(&self.0.message, Age::Today))?;
        if let Some(configuration) = &self.0.configuration {
            map.serialize_entry("configuration", &Configuration(configuration))?;
        }
        if let Some(metadata) = &self.0.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// What the operations on one task or registration take.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct IdOut<'a> {
    id: &'a TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(
        rename = "pushNotificationConfigId",
        skip_serializing_if = "Option::is_none"
    )]
    config: Option<&'a PushConfigId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a crate::model::Object>,
}

impl<'a> IdOut<'a> {
    fn new(id: &'a TaskId) -> Self {
        Self {
            id,
            history_length: None,
            config: None,
            metadata: None,
        }
    }
}
