//! Serialization of JSON-RPC params.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::model::{
    CancelTaskRequest, DeletePushConfigRequest, Error, ErrorKind, GetPushConfigRequest,
    GetTaskRequest, ListPushConfigsRequest, PushConfigId, Request, SendMessageConfiguration,
    SendMessageRequest, SubscribeToTaskRequest, TaskId, Version,
};
use crate::wire::v03::{Audience, V03, write_configuration, zero_as_absent};
use crate::wire::write_json;

/// Writes the params of a JSON-RPC call in a version.
///
/// # Errors
/// Unsupported operation: 0.3 cannot list tasks.
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
            write_json(out, request)
        }
        Request::GetTask(request) => write_json(out, request),
        Request::ListTasks(request) => write_json(out, request),
        Request::CancelTask(request) => write_json(out, request),
        Request::SubscribeToTask(request) => write_json(out, request),
        Request::CreatePushConfig(config) => write_json(out, config),
        Request::GetPushConfig(request) => write_json(out, request),
        Request::ListPushConfigs(request) => write_json(out, request),
        Request::DeletePushConfig(request) => write_json(out, request),
        Request::GetExtendedAgentCard(request) => write_json(out, request),
    }
}

pub(in crate::wire) fn list_tasks_unsupported() -> Error {
    Error::new(ErrorKind::UnsupportedOperation)
        .with_message("This operation is not supported: A2A 0.3 cannot list tasks")
}

fn write_v03(out: &mut Vec<u8>, request: &Request) -> Result<(), Error> {
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            write_json(out, &V03SendParamsWriter(request))
        }
        Request::GetTask(GetTaskRequest {
            id, history_length, ..
        }) => {
            write_json(
                out,
                &V03IdParamsWriter {
                    id,
                    history_length: zero_as_absent(*history_length),
                    config: None,
                    metadata: None,
                },
            );
        }
        Request::ListTasks(_) => return Err(list_tasks_unsupported()),
        Request::CancelTask(CancelTaskRequest { id, metadata, .. }) => {
            write_json(
                out,
                &V03IdParamsWriter {
                    id,
                    history_length: None,
                    config: None,
                    metadata: metadata.as_ref(),
                },
            );
        }
        Request::SubscribeToTask(SubscribeToTaskRequest { id, .. }) => {
            write_json(out, &V03IdParamsWriter::new(id))
        }
        Request::CreatePushConfig(config) => write_json(out, &V03(&**config, Audience::V03)),
        Request::GetPushConfig(GetPushConfigRequest { task_id, id, .. }) => {
            write_json(
                out,
                &V03IdParamsWriter {
                    config: id.as_ref(),
                    ..V03IdParamsWriter::new(task_id)
                },
            );
        }
        Request::ListPushConfigs(ListPushConfigsRequest { task_id, .. }) => {
            write_json(out, &V03IdParamsWriter::new(task_id))
        }
        Request::DeletePushConfig(DeletePushConfigRequest { task_id, id, .. }) => {
            write_json(
                out,
                &V03IdParamsWriter {
                    config: Some(id),
                    ..V03IdParamsWriter::new(task_id)
                },
            );
        }
        Request::GetExtendedAgentCard(_) => out.extend_from_slice(b"{}"),
    }
    Ok(())
}

/// Params of `message/send`.
struct V03SendParamsWriter<'a>(&'a SendMessageRequest);

impl Serialize for V03SendParamsWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct V03ConfigurationWriter<'a>(&'a SendMessageConfiguration);
        impl Serialize for V03ConfigurationWriter<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                write_configuration(self.0, serializer)
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message", &V03(&self.0.message, Audience::V03))?;
        if let Some(configuration) = &self.0.configuration {
            map.serialize_entry("configuration", &V03ConfigurationWriter(configuration))?;
        }
        if let Some(metadata) = &self.0.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// Params of the operations on one task or push configuration.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct V03IdParamsWriter<'a> {
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

impl<'a> V03IdParamsWriter<'a> {
    fn new(id: &'a TaskId) -> Self {
        Self {
            id,
            history_length: None,
            config: None,
            metadata: None,
        }
    }
}
