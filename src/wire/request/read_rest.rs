//! Deserialization of REST requests from path, query and body.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::{
    CancelTaskRequest, DeletePushConfigRequest, Error, ErrorKind, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest, ListTasksRequest, Operation,
    PushConfig, PushConfigId, Request, SendMessageRequest, SubscribeToTaskRequest, TaskId, Version,
    non_empty,
};
use crate::wire::json::{prefix_field, read, read_body};
use crate::wire::path::RestRoute;
use crate::wire::query::QueryParams;
use crate::wire::v03::{
    V03PushConfig, V03SendParams, V03TaskParams, parse_push_config_name, parse_task_name,
    zero_as_absent,
};
use crate::wire::{Dialect, json, v1};

/// Reads a REST request. Returns the request and the dialect of the response. `query` is without
/// the question mark.
///
/// # Errors
/// The body is not JSON, or a parameter is invalid; names the field.
pub fn read_rest(route: &RestRoute, query: &str, body: &[u8]) -> Result<(Request, Dialect), Error> {
    let query = QueryParams::read(query);
    // Requests without parameters may have no body.
    let body = if body.iter().all(u8::is_ascii_whitespace) {
        b"{}"
    } else {
        body
    };
    match route.route_version.version() {
        Version::V1 => Ok((read_rest_v1(route, &query, body)?, Dialect::V1)),
        Version::V03 => read_rest_v03(route, &query, body),
    }
}

fn read_rest_v1(route: &RestRoute, query: &QueryParams<'_>, body: &[u8]) -> Result<Request, Error> {
    let tenant = |body: Option<String>| merge_with_path("tenant", route.tenant.clone(), body);
    let in_query = || Ok::<_, Error>(query.text("tenant")?.map(str::to_owned));
    let task = |body: Option<TaskId>, field| {
        merge_with_path(field, route.task.clone(), body).map(Option::unwrap_or_default)
    };
    let text = || json::check(body);
    Ok(match route.operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            let mut send = v1::read_send(text()?)?;
            send.tenant = tenant(send.tenant)?;
            match route.operation {
                Operation::SendMessage => Request::SendMessage(send),
                _ => Request::SendStreamingMessage(send),
            }
        }
        Operation::GetTask => Request::GetTask(GetTaskRequest {
            tenant: tenant(in_query()?)?,
            id: task(None, "id")?,
            history_length: query.int("historyLength")?,
        }),
        Operation::ListTasks => Request::ListTasks(ListTasksRequest {
            tenant: tenant(in_query()?)?,
            context_id: query.text("contextId")?.map(Into::into),
            status: query.state("status")?,
            page_size: query.int("pageSize")?,
            page_token: query.text("pageToken")?.map(str::to_owned),
            history_length: query.int("historyLength")?,
            status_timestamp_after: query.time("statusTimestampAfter")?,
            include_artifacts: query.flag("includeArtifacts")?,
        }),
        Operation::CancelTask => {
            let cancel: CancelTaskRequest = read(text()?)?;
            let id = task(Some(cancel.id), "id")?;
            Request::CancelTask(CancelTaskRequest {
                tenant: tenant(cancel.tenant)?,
                id,
                metadata: cancel.metadata,
            })
        }
        Operation::SubscribeToTask => {
            let subscribe: SubscribeToTaskRequest = read(text()?)?;
            let tenant = tenant(subscribe.tenant.or(in_query()?))?;
            Request::SubscribeToTask(SubscribeToTaskRequest {
                tenant,
                id: task(Some(subscribe.id), "id")?,
            })
        }
        Operation::CreatePushConfig => {
            let mut config = v1::read_push_config(text()?)?;
            config.tenant = tenant(config.tenant)?;
            config.task_id = Some(task(config.task_id, "taskId")?);
            Request::CreatePushConfig(Box::new(config))
        }
        Operation::GetPushConfig => Request::GetPushConfig(GetPushConfigRequest {
            tenant: tenant(in_query()?)?,
            task_id: task(None, "taskId")?,
            id: route.config.clone(),
            allow_missing_id: false,
        }),
        Operation::ListPushConfigs => Request::ListPushConfigs(ListPushConfigsRequest {
            tenant: tenant(in_query()?)?,
            task_id: task(None, "taskId")?,
            page_size: query.int("pageSize")?.unwrap_or_default(),
            page_token: query.text("pageToken")?.map(str::to_owned),
        }),
        Operation::DeletePushConfig => Request::DeletePushConfig(DeletePushConfigRequest {
            tenant: tenant(in_query()?)?,
            task_id: task(None, "taskId")?,
            id: route.config.clone().unwrap_or_default(),
        }),
        Operation::GetExtendedAgentCard => {
            Request::GetExtendedAgentCard(GetExtendedAgentCardRequest {
                tenant: tenant(in_query()?)?,
            })
        }
    })
}

/// Merges a value from the path with one from the body. Different values are an error; none is
/// preferred (S84).
fn merge_with_path<T: PartialEq + AsRef<str>>(
    field: &str,
    path: Option<T>,
    body: Option<T>,
) -> Result<Option<T>, Error> {
    match (path, body.filter(|text| !text.as_ref().is_empty())) {
        (Some(path), Some(body)) if path != body => {
            Err(Error::invalid(field, "does not match the path"))
        }
        (path, body) => Ok(path.or(body)),
    }
}

fn read_rest_v03(
    route: &RestRoute,
    query: &QueryParams<'_>,
    body: &[u8],
) -> Result<(Request, Dialect), Error> {
    let in_path = || route.task.clone().unwrap_or_default();
    let task = |body: V03TaskParams| {
        let (id, field) = body.task()?;
        merge_with_path(field, route.task.clone(), Some(id)).map(Option::unwrap_or_default)
    };
    let proto_json = |request| Ok((request, Dialect::V03Rest));
    match route.operation {
        Operation::SendMessage => read_rest_send(body, Request::SendMessage),
        Operation::SendStreamingMessage => read_rest_send(body, Request::SendStreamingMessage),
        Operation::GetTask => proto_json(Request::GetTask(GetTaskRequest {
            tenant: None,
            id: in_path(),
            history_length: zero_as_absent(query.int("historyLength")?),
        })),
        Operation::ListTasks => Err(ErrorKind::MethodNotFound.into()),
        Operation::CancelTask => {
            let mut read: V03TaskParams = read_body(body)?;
            let metadata = read.metadata.take();
            proto_json(Request::CancelTask(CancelTaskRequest {
                tenant: None,
                id: task(read)?,
                metadata,
            }))
        }
        Operation::SubscribeToTask => {
            let id = task(read_body(body)?)?;
            proto_json(Request::SubscribeToTask(SubscribeToTaskRequest {
                tenant: None,
                id,
            }))
        }
        Operation::CreatePushConfig => proto_json(Request::CreatePushConfig(Box::new(
            read_rest_push_config(route, body)?,
        ))),
        Operation::GetPushConfig => proto_json(Request::GetPushConfig(GetPushConfigRequest {
            tenant: None,
            task_id: in_path(),
            id: route.config.clone(),
            allow_missing_id: true,
        })),
        Operation::ListPushConfigs => {
            proto_json(Request::ListPushConfigs(ListPushConfigsRequest {
                tenant: None,
                task_id: in_path(),
                page_size: query.int("pageSize")?.unwrap_or_default(),
                page_token: query.text("pageToken")?.map(str::to_owned),
            }))
        }
        Operation::DeletePushConfig => {
            proto_json(Request::DeletePushConfig(DeletePushConfigRequest {
                tenant: None,
                task_id: in_path(),
                id: route.config.clone().unwrap_or_default(),
            }))
        }
        Operation::GetExtendedAgentCard => proto_json(Request::GetExtendedAgentCard(
            GetExtendedAgentCardRequest::default(),
        )),
    }
}

/// Reads a send. The form of the body determines the dialect: `kind` members as in JSON-RPC, or
/// ProtoJSON.
fn read_rest_send(
    body: &[u8],
    request: fn(Box<SendMessageRequest>) -> Request,
) -> Result<(Request, Dialect), Error> {
    let text = json::check(body)?;
    if has_kind_members(text) {
        let mut send = read::<V03SendParams<false>>(text)?.into_model(true)?;
        send.alias = None;
        return Ok((request(Box::new(send)), Dialect::V03));
    }
    // ProtoJSON omits `false`, so a configuration without the flag means non-blocking (04 §3.1).
    let mut send = read::<V03SendParams<true>>(text)?.into_model(false)?;
    send.alias = None;
    Ok((request(Box::new(send)), Dialect::V03Rest))
}

/// Whether a message uses `kind` members or a lower-case role.
fn has_kind_members(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Body {
        message: Option<Message>,
    }
    #[derive(Deserialize)]
    struct Message {
        kind: Option<serde::de::IgnoredAny>,
        role: Option<serde_json::Value>,
        #[serde(default)]
        parts: Vec<Part>,
    }
    #[derive(Deserialize)]
    struct Part {
        kind: Option<serde::de::IgnoredAny>,
    }
    let Ok(Body {
        message: Some(message),
    }) = serde_json::from_str::<Body>(text)
    else {
        return false;
    };
    let lower = message
        .role
        .as_ref()
        .and_then(|role| role.as_str())
        .is_some_and(|role| matches!(role, "user" | "agent"));
    lower || message.kind.is_some() || message.parts.iter().any(|part| part.kind.is_some())
}

/// Reads a new push configuration. Clients send the whole request of the proto, its `config`, or
/// only the innermost object.
fn read_rest_push_config(route: &RestRoute, body: &[u8]) -> Result<PushConfig, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CreatePushConfigBody<'a> {
        #[serde(default, deserialize_with = "non_empty")]
        parent: Option<String>,
        #[serde(default, alias = "config_id", deserialize_with = "non_empty")]
        config_id: Option<PushConfigId>,
        #[serde(borrow)]
        config: Option<&'a RawValue>,
    }
    let text = json::check(body)?;
    let create: CreatePushConfigBody<'_> = read(text)?;
    let (place, text) = create
        .config
        .map_or(("", text), |config| ("config", config.get()));
    check_resource_name(route, text).map_err(|error| prefix_field(place, error))?;
    let V03PushConfig(mut config) = read(text).map_err(|error| prefix_field(place, error))?;
    if let Some(parent) = &create.parent {
        merge_with_path(
            "parent",
            route.task.clone(),
            Some(parse_task_name("parent", parent)?),
        )?;
    }
    config.task_id = merge_with_path("taskId", route.task.clone(), config.task_id)?;
    config.id = match (create.config_id, config.id) {
        (Some(outer), Some(inner)) if outer != inner => {
            return Err(Error::invalid("configId", "does not match the config"));
        }
        (outer, inner) => outer.or(inner),
    };
    Ok(config)
}

/// Checks that a resource name in the body belongs to the task in the path.
fn check_resource_name(route: &RestRoute, text: &str) -> Result<(), Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct NamedPushConfig {
        #[serde(default, deserialize_with = "non_empty")]
        name: Option<String>,
        #[serde(alias = "push_notification_config")]
        push_notification_config: Option<serde::de::IgnoredAny>,
    }
    let NamedPushConfig {
        name: Some(name),
        push_notification_config: Some(_),
    } = read(text)?
    else {
        return Ok(());
    };
    let (task, _) = parse_push_config_name(&name)
        .ok_or_else(|| Error::invalid("name", "must be tasks/{id}/pushNotificationConfigs/{id}"))?;
    merge_with_path("name", route.task.clone(), Some(task)).map(drop)
}
