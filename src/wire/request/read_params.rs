//! Deserialization of JSON-RPC params.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::model::{
    CancelTaskRequest, ClientDialect, DeletePushConfigRequest, Error, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest, MessageId, Operation, Request,
    SendMessageRequest, SubscribeToTaskRequest, TaskId, Version,
};
use crate::wire::json::read;
use crate::wire::kaos::KaosMarks;
use crate::wire::method::JsonRpcMethod;
use crate::wire::negotiation::RouteVersion;
use crate::wire::v03::{
    V03PushConfig, V03PushConfigParams, V03SendParams, V03TaskParams, zero_as_absent,
};
use crate::wire::{Dialect, v1};

/// Reads the params of a JSON-RPC call. Returns the request and the dialect of the response.
///
/// # Errors
/// Invalid parameters; names the field.
pub fn read_params(method: JsonRpcMethod, params: &str) -> Result<(Request, Dialect), Error> {
    check_object(params)?;
    match method.route_version.version() {
        Version::V1 => Ok((read_v1(method.operation, params)?, Dialect::V1)),
        Version::V03 => read_v03(method, params),
    }
}

/// Reads the params of a JSON-RPC call without `A2A-Version`, like [`read_params`]. Also recognizes the
/// clients that mix versions: KAOS and fasta2a (09 S0, 08 §7).
///
/// # Errors
/// Invalid parameters; names the field.
pub fn read_unversioned_params(
    method: JsonRpcMethod,
    params: &str,
) -> Result<(Request, Dialect), Error> {
    match (method.route_version, method.operation) {
        (RouteVersion::MethodV1, Operation::SendMessage) => read_kaos_or_v1(method, params),
        (RouteVersion::MethodV03, Operation::SendMessage) => {
            read_fasta2a_or_v03(params, Request::SendMessage)
        }
        (RouteVersion::MethodV03, Operation::SendStreamingMessage) => {
            read_fasta2a_or_v03(params, Request::SendStreamingMessage)
        }
        _ => read_params(method, params),
    }
}

fn read_kaos_or_v1(method: JsonRpcMethod, params: &str) -> Result<(Request, Dialect), Error> {
    let (mut request, dialect) = read_params(method, params)?;
    match &mut request {
        Request::SendMessage(send) if KaosMarks::read(params).selects_dialect() => {
            send.dialect = Some(ClientDialect::Kaos);
            Ok((request, Dialect::Kaos))
        }
        _ => Ok((request, dialect)),
    }
}

fn read_fasta2a_or_v03(
    params: &str,
    request: fn(Box<SendMessageRequest>) -> Request,
) -> Result<(Request, Dialect), Error> {
    check_object(params)?;
    let send: V03SendParams<false> = read(params)?;
    let dialect = if send.is_fasta2a() {
        Dialect::Fasta2a
    } else {
        Dialect::V03
    };
    let mut send = send.into_model(true)?;
    send.alias = None;
    Ok((request(Box::new(send)), dialect))
}

fn check_object(params: &str) -> Result<(), Error> {
    if params.starts_with('{') {
        return Ok(());
    }
    Err(Error::invalid("params", "must be an object"))
}

fn read_v1(operation: Operation, params: &str) -> Result<Request, Error> {
    Ok(match operation {
        Operation::SendMessage => Request::SendMessage(v1::read_send(params)?),
        Operation::SendStreamingMessage => Request::SendStreamingMessage(v1::read_send(params)?),
        Operation::GetTask => Request::GetTask(read(params)?),
        Operation::ListTasks => Request::ListTasks(read(params)?),
        Operation::CancelTask => Request::CancelTask(read(params)?),
        Operation::SubscribeToTask => Request::SubscribeToTask(read(params)?),
        Operation::CreatePushConfig => {
            Request::CreatePushConfig(Box::new(v1::read_push_config(params)?))
        }
        Operation::GetPushConfig => Request::GetPushConfig(read(params)?),
        Operation::ListPushConfigs => Request::ListPushConfigs(read(params)?),
        Operation::DeletePushConfig => Request::DeletePushConfig(read(params)?),
        Operation::GetExtendedAgentCard => Request::GetExtendedAgentCard(read(params)?),
    })
}

fn read_v03(method: JsonRpcMethod, params: &str) -> Result<(Request, Dialect), Error> {
    let v03 = |request| Ok((request, Dialect::V03));
    match method.operation {
        Operation::SendMessage => read_send(method.route_version, params, Request::SendMessage),
        Operation::SendStreamingMessage => {
            read_send(method.route_version, params, Request::SendStreamingMessage)
        }
        Operation::GetTask => {
            let read: V03TaskParams = read(params)?;
            let history_length = zero_as_absent(read.history_length);
            let (id, _) = read.task()?;
            v03(Request::GetTask(GetTaskRequest {
                tenant: None,
                id,
                history_length,
            }))
        }
        Operation::ListTasks => v03(Request::ListTasks(read(params)?)),
        Operation::CancelTask => {
            let mut read: V03TaskParams = read(params)?;
            let metadata = read.metadata.take();
            let (id, _) = read.task()?;
            v03(Request::CancelTask(CancelTaskRequest {
                tenant: None,
                id,
                metadata,
            }))
        }
        Operation::SubscribeToTask => {
            let (id, _) = read::<V03TaskParams>(params)?.task()?;
            v03(Request::SubscribeToTask(SubscribeToTaskRequest {
                tenant: None,
                id,
            }))
        }
        Operation::CreatePushConfig => {
            let V03PushConfig(config) = read(params)?;
            let dialect = match reply_dialect(method.route_version, config.task_id.as_ref()) {
                Dialect::V03 if has_push_headers(params) => Dialect::V03PushSuccess,
                dialect => dialect,
            };
            Ok((Request::CreatePushConfig(Box::new(config)), dialect))
        }
        Operation::GetPushConfig => {
            let (task_id, id) = read::<V03PushConfigParams>(params)?.ids()?;
            let dialect = reply_dialect(method.route_version, Some(&task_id));
            Ok((
                Request::GetPushConfig(GetPushConfigRequest {
                    tenant: None,
                    task_id,
                    id,
                    allow_missing_id: true,
                }),
                dialect,
            ))
        }
        Operation::ListPushConfigs => {
            let (task_id, _) = read::<V03PushConfigParams>(params)?.ids()?;
            v03(Request::ListPushConfigs(ListPushConfigsRequest {
                task_id,
                ..ListPushConfigsRequest::default()
            }))
        }
        Operation::DeletePushConfig => {
            let (task_id, id) = read::<V03PushConfigParams>(params)?.ids()?;
            let id =
                id.ok_or_else(|| Error::invalid("pushNotificationConfigId", "must not be empty"))?;
            v03(Request::DeletePushConfig(DeletePushConfigRequest {
                tenant: None,
                task_id,
                id,
            }))
        }
        Operation::GetExtendedAgentCard => v03(Request::GetExtendedAgentCard(
            GetExtendedAgentCardRequest::default(),
        )),
    }
}

/// Returns the dialect of the response. A method name of 0.1 selects the 0.1 dialect, with the
/// client's task id as alias.
fn reply_dialect(route_version: RouteVersion, task: Option<&TaskId>) -> Dialect {
    match route_version {
        RouteVersion::MethodV01 => Dialect::V01 {
            alias: task.cloned(),
        },
        RouteVersion::MethodV03
        | RouteVersion::MethodV1
        | RouteVersion::PathV03
        | RouteVersion::PathV1
        | RouteVersion::ServiceV03
        | RouteVersion::ServiceV1 => Dialect::V03,
    }
}

/// Whether the push configuration has `headers` (09, 3.11).
fn has_push_headers(params: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        push_notification_config: Option<Marks>,
    }
    #[derive(Deserialize)]
    struct Marks {
        headers: Option<IgnoredAny>,
    }
    let read = serde_json::from_str::<Params>(params).ok();
    let config = read.and_then(|params| params.push_notification_config);
    config.is_some_and(|config| config.headers.is_some())
}

fn read_send(
    route_version: RouteVersion,
    params: &str,
    request: fn(Box<SendMessageRequest>) -> Request,
) -> Result<(Request, Dialect), Error> {
    let send: V03SendParams<false> = read(params)?;
    // KAOS and selectools use the 0.1 method with newer bodies (09, 0.4 and 4.10), so the body
    // decides.
    let first = route_version == RouteVersion::MethodV01 && send.is_v01();
    let mut send = send.into_model(true)?;
    if !first {
        send.alias = None;
        return Ok((request(Box::new(send)), Dialect::V03));
    }
    if send.message.message_id.is_empty() {
        // 0.1 messages have no ids.
        send.message.message_id = MessageId::random();
    }
    let alias = send.alias.clone();
    Ok((request(Box::new(send)), Dialect::V01 { alias }))
}
