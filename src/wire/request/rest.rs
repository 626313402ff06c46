//! Reading REST requests: path, query and body.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::{
    CancelTaskRequest, DeletePushConfigRequest, Error, ErrorKind, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest, ListTasksRequest, Operation,
    PushConfig, PushConfigId, Request, SendMessageRequest, SubscribeToTaskRequest, TaskId, Version,
    non_empty,
};
use crate::wire::json::{inside, read, read_body};
use crate::wire::path::Route;
use crate::wire::query::Query;
use crate::wire::v03::{PushConfigIn, SendIn, TaskIdIn, some_history, split_name, task_of};
use crate::wire::{Dialect, json, v1};

/// Reads a REST request, and says in which dialect to answer. `query` is without the question mark.
///
/// # Errors
/// The body is not JSON, or a parameter is wrong; the field is named.
pub fn read_rest(route: &Route, query: &str, body: &[u8]) -> Result<(Request, Dialect), Error> {
    let query = Query::read(query);
    // Calls without parameters may come without a body.
    let body = if body.iter().all(u8::is_ascii_whitespace) {
        b"{}"
    } else {
        body
    };
    match route.key.version() {
        Version::V1 => Ok((rest_v1(route, &query, body)?, Dialect::V1)),
        Version::V03 => rest_v03(route, &query, body),
    }
}

fn rest_v1(route: &Route, query: &Query<'_>, body: &[u8]) -> Result<Request, Error> {
    let tenant = |body: Option<String>| agree("tenant", route.tenant.clone(), body);
    let in_query = || Ok::<_, Error>(query.text("tenant")?.map(str::to_owned));
    let task = |body: Option<TaskId>, field| {
        agree(field, route.task.clone(), body).map(Option::unwrap_or_default)
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
            any: false,
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

/// The path fills what the body leaves out; two that differ are an error, never a choice.
fn agree<T: PartialEq + AsRef<str>>(
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

fn rest_v03(route: &Route, query: &Query<'_>, body: &[u8]) -> Result<(Request, Dialect), Error> {
    let in_path = || route.task.clone().unwrap_or_default();
    let task = |body: TaskIdIn| {
        let (id, field) = body.task()?;
        agree(field, route.task.clone(), Some(id)).map(Option::unwrap_or_default)
    };
    let proto = |request| Ok((request, Dialect::V03Rest));
    match route.operation {
        Operation::SendMessage => rest_send(body, Request::SendMessage),
        Operation::SendStreamingMessage => rest_send(body, Request::SendStreamingMessage),
        Operation::GetTask => proto(Request::GetTask(GetTaskRequest {
            tenant: None,
            id: in_path(),
            history_length: some_history(query.int("historyLength")?),
        })),
        Operation::ListTasks => Err(ErrorKind::MethodNotFound.into()),
        Operation::CancelTask => {
            let mut read: TaskIdIn = read_body(body)?;
            let metadata = read.metadata.take();
            proto(Request::CancelTask(CancelTaskRequest {
                tenant: None,
                id: task(read)?,
                metadata,
            }))
        }
        Operation::SubscribeToTask => {
            let id = task(read_body(body)?)?;
            proto(Request::SubscribeToTask(SubscribeToTaskRequest {
                tenant: None,
                id,
            }))
        }
        Operation::CreatePushConfig => proto(Request::CreatePushConfig(Box::new(rest_config(
            route, body,
        )?))),
        Operation::GetPushConfig => proto(Request::GetPushConfig(GetPushConfigRequest {
            tenant: None,
            task_id: in_path(),
            id: route.config.clone(),
            any: true,
        })),
        Operation::ListPushConfigs => proto(Request::ListPushConfigs(ListPushConfigsRequest {
            tenant: None,
            task_id: in_path(),
            page_size: query.int("pageSize")?.unwrap_or_default(),
            page_token: query.text("pageToken")?.map(str::to_owned),
        })),
        Operation::DeletePushConfig => proto(Request::DeletePushConfig(DeletePushConfigRequest {
            tenant: None,
            task_id: in_path(),
            id: route.config.clone().unwrap_or_default(),
        })),
        Operation::GetExtendedAgentCard => proto(Request::GetExtendedAgentCard(
            GetExtendedAgentCardRequest::default(),
        )),
    }
}

/// The body's flavour decides how it is read and answered: `kind` as in JSON-RPC, or ProtoJSON.
fn rest_send(
    body: &[u8],
    request: fn(Box<SendMessageRequest>) -> Request,
) -> Result<(Request, Dialect), Error> {
    let text = json::check(body)?;
    if has_kinds(text) {
        let mut send = read::<SendIn<false>>(text)?.into_model(true)?;
        send.alias = None;
        return Ok((request(Box::new(send)), Dialect::V03));
    }
    // 04 §3.1: in ProtoJSON `false` cannot be said, so a configuration without the flag says it.
    let mut send = read::<SendIn<true>>(text)?.into_model(false)?;
    send.alias = None;
    Ok((request(Box::new(send)), Dialect::V03Rest))
}

/// Whether a message is in kind style: it says so, or spells its role in lower case.
fn has_kinds(text: &str) -> bool {
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

/// Whatever of the proto's request a client sends: all of it, its `config`, or the innermost registration alone.
fn rest_config(route: &Route, body: &[u8]) -> Result<PushConfig, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Create<'a> {
        #[serde(default, deserialize_with = "non_empty")]
        parent: Option<String>,
        #[serde(default, alias = "config_id", deserialize_with = "non_empty")]
        config_id: Option<PushConfigId>,
        #[serde(borrow)]
        config: Option<&'a RawValue>,
    }
    let text = json::check(body)?;
    let create: Create<'_> = read(text)?;
    let (place, text) = create
        .config
        .map_or(("", text), |config| ("config", config.get()));
    check_name(route, text).map_err(|error| inside(place, error))?;
    let PushConfigIn(mut config) = read(text).map_err(|error| inside(place, error))?;
    if let Some(parent) = &create.parent {
        agree(
            "parent",
            route.task.clone(),
            Some(task_of("parent", parent)?),
        )?;
    }
    config.task_id = agree("taskId", route.task.clone(), config.task_id)?;
    config.id = match (create.config_id, config.id) {
        (Some(outer), Some(inner)) if outer != inner => {
            return Err(Error::invalid("configId", "does not match the config"));
        }
        (outer, inner) => outer.or(inner),
    };
    Ok(config)
}

/// The resource name beside a registration, if there is one, is that of a registration of this task.
fn check_name(route: &Route, text: &str) -> Result<(), Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Named {
        #[serde(default, deserialize_with = "non_empty")]
        name: Option<String>,
        #[serde(alias = "push_notification_config")]
        push_notification_config: Option<serde::de::IgnoredAny>,
    }
    let Named {
        name: Some(name),
        push_notification_config: Some(_),
    } = read(text)?
    else {
        return Ok(());
    };
    let (task, _) = split_name(&name)
        .ok_or_else(|| Error::invalid("name", "must be tasks/{id}/pushNotificationConfigs/{id}"))?;
    agree("name", route.task.clone(), Some(task)).map(drop)
}
