//! Reading requests into the model, and writing them as a client does.

use serde::Deserialize;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::decide::Key;
use super::json::{inside, read, read_body};
use super::method::Method;
use super::path::{self, Route};
use super::query::{self, Query};
use super::v03::rest::{CreateConfig, Proto};
use super::v03::{
    Age, ConfigIdIn, PushConfigIn, SendIn, TaskIdIn, V03, some_history, split_name, task_of,
    write_configuration,
};
use super::{Dialect, v1, write};
use crate::model::{
    CancelTaskRequest, DeletePushConfigRequest, Error, ErrorKind, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest, ListTasksRequest, MessageId, Operation,
    PushConfig, PushConfigId, Request, SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest,
    TaskId, Version, non_empty,
};

/// Reads the params of a JSON-RPC call, and says in which dialect to answer.
///
/// # Errors
/// Invalid parameters, naming the field.
pub fn read_params(method: Method, params: &str) -> Result<(Request, Dialect), Error> {
    match method.key.version() {
        Version::V1 => Ok((read_v1(method.operation, params)?, Dialect::V1)),
        Version::V03 => read_v03(method, params),
    }
}

fn read_v1(operation: Operation, params: &str) -> Result<Request, Error> {
    Ok(match operation {
        Operation::SendMessage => Request::SendMessage(v1::read_send(params)?),
        Operation::SendStreamingMessage => Request::SendStreamingMessage(v1::read_send(params)?),
        Operation::GetTask => Request::GetTask(read(params)?),
        Operation::ListTasks => Request::ListTasks(read(params)?),
        Operation::CancelTask => Request::CancelTask(read(params)?),
        Operation::SubscribeToTask => Request::SubscribeToTask(read(params)?),
        Operation::CreatePushConfig => Request::CreatePushConfig(v1::read_push_config(params)?),
        Operation::GetPushConfig => Request::GetPushConfig(read(params)?),
        Operation::ListPushConfigs => Request::ListPushConfigs(read(params)?),
        Operation::DeletePushConfig => Request::DeletePushConfig(read(params)?),
        Operation::GetExtendedAgentCard => Request::GetExtendedAgentCard(read(params)?),
    })
}

fn read_v03(method: Method, params: &str) -> Result<(Request, Dialect), Error> {
    let today = |request| Ok((request, Dialect::V03));
    match method.operation {
        Operation::SendMessage => read_send(method.key, params, Request::SendMessage),
        Operation::SendStreamingMessage => read_send(method.key, params, Request::SendStreamingMessage),
        Operation::GetTask => {
            let read: TaskIdIn = read(params)?;
            let history_length = some_history(read.history_length);
            let (id, _) = read.task()?;
            today(Request::GetTask(GetTaskRequest { tenant: None, id, history_length }))
        }
        Operation::ListTasks => today(Request::ListTasks(read(params)?)),
        Operation::CancelTask => {
            let mut read: TaskIdIn = read(params)?;
            let metadata = read.metadata.take();
            let (id, _) = read.task()?;
            today(Request::CancelTask(CancelTaskRequest { tenant: None, id, metadata }))
        }
        Operation::SubscribeToTask => {
            let (id, _) = read::<TaskIdIn>(params)?.task()?;
            today(Request::SubscribeToTask(SubscribeToTaskRequest { tenant: None, id }))
        }
        Operation::CreatePushConfig => {
            let PushConfigIn(config) = read(params)?;
            let dialect = of_age(method.key, config.task_id.as_ref());
            Ok((Request::CreatePushConfig(config), dialect))
        }
        Operation::GetPushConfig => {
            let (task_id, id) = read::<ConfigIdIn>(params)?.ids()?;
            let dialect = of_age(method.key, Some(&task_id));
            Ok((
                Request::GetPushConfig(GetPushConfigRequest { tenant: None, task_id, id, any: true }),
                dialect,
            ))
        }
        Operation::ListPushConfigs => {
            let (task_id, _) = read::<ConfigIdIn>(params)?.ids()?;
            today(Request::ListPushConfigs(ListPushConfigsRequest {
                task_id,
                ..ListPushConfigsRequest::default()
            }))
        }
        Operation::DeletePushConfig => {
            let (task_id, id) = read::<ConfigIdIn>(params)?.ids()?;
            let id = id.ok_or_else(|| Error::invalid("pushNotificationConfigId", "must not be empty"))?;
            today(Request::DeletePushConfig(DeletePushConfigRequest { tenant: None, task_id, id }))
        }
        Operation::GetExtendedAgentCard => {
            today(Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default()))
        }
    }
}

/// A call by a name of 0.1 is answered for clients of that time, by the name they gave the task.
fn of_age(key: Key, task: Option<&TaskId>) -> Dialect {
    match key {
        Key::MethodV01 => Dialect::V01 { alias: task.cloned() },
        Key::MethodV03 | Key::MethodV1 | Key::PathV03 | Key::PathV1 | Key::ServiceV03 | Key::ServiceV1 => {
            Dialect::V03
        }
    }
}

fn read_send(
    key: Key,
    params: &str,
    request: fn(SendMessageRequest) -> Request,
) -> Result<(Request, Dialect), Error> {
    let send: SendIn<false> = read(params)?;
    // Two seeds use the old name with newer bodies: the body decides.
    let first = key == Key::MethodV01 && send.is_v01();
    let mut send = send.into_model(true)?;
    if !first {
        send.alias = None;
        return Ok((request(send), Dialect::V03));
    }
    if send.message.message_id.is_empty() {
        // 0.1 has no ids on messages.
        send.message.message_id = MessageId::random();
    }
    let alias = send.alias.clone();
    Ok((request(send), Dialect::V01 { alias }))
}

/// Reads a REST request, and says in which dialect to answer. `query` is without the question mark.
///
/// # Errors
/// The body is not JSON, or a parameter is wrong; the field is named.
pub fn read_rest(route: &Route, query: &str, body: &[u8]) -> Result<(Request, Dialect), Error> {
    let query = Query::read(query);
    // Calls without parameters may come without a body.
    let body = if body.iter().all(u8::is_ascii_whitespace) { b"{}" } else { body };
    match route.key.version() {
        Version::V1 => Ok((rest_v1(route, &query, body)?, Dialect::V1)),
        Version::V03 => rest_v03(route, &query, body),
    }
}

fn rest_v1(route: &Route, query: &Query<'_>, body: &[u8]) -> Result<Request, Error> {
    let tenant = |body: Option<String>| agree("tenant", route.tenant.clone(), body);
    let in_query = || Ok::<_, Error>(query.text("tenant")?.map(str::to_owned));
    let task =
        |body: Option<TaskId>, field| agree(field, route.task.clone(), body).map(Option::unwrap_or_default);
    let text = || super::json::check(body);
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
            Request::SubscribeToTask(SubscribeToTaskRequest { tenant, id: task(Some(subscribe.id), "id")? })
        }
        Operation::CreatePushConfig => {
            let mut config = v1::read_push_config(text()?)?;
            config.tenant = tenant(config.tenant)?;
            config.task_id = Some(task(config.task_id, "taskId")?);
            Request::CreatePushConfig(config)
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
            Request::GetExtendedAgentCard(GetExtendedAgentCardRequest { tenant: tenant(in_query()?)? })
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
        (Some(path), Some(body)) if path != body => Err(Error::invalid(field, "does not match the path")),
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
            proto(Request::CancelTask(CancelTaskRequest { tenant: None, id: task(read)?, metadata }))
        }
        Operation::SubscribeToTask => {
            let id = task(read_body(body)?)?;
            proto(Request::SubscribeToTask(SubscribeToTaskRequest { tenant: None, id }))
        }
        Operation::CreatePushConfig => proto(Request::CreatePushConfig(rest_config(route, body)?)),
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
        Operation::GetExtendedAgentCard => {
            proto(Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default()))
        }
    }
}

/// The body's flavour decides how it is read and answered: `kind` as in JSON-RPC, or ProtoJSON.
fn rest_send(body: &[u8], request: fn(SendMessageRequest) -> Request) -> Result<(Request, Dialect), Error> {
    let text = super::json::check(body)?;
    if has_kinds(text) {
        let mut send = read::<SendIn<false>>(text)?.into_model(true)?;
        send.alias = None;
        return Ok((request(send), Dialect::V03));
    }
    // 04 §3.1: in ProtoJSON `false` cannot be said, so a configuration without the flag says it.
    let mut send = read::<SendIn<true>>(text)?.into_model(false)?;
    send.alias = None;
    Ok((request(send), Dialect::V03Rest))
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
    let Ok(Body { message: Some(message) }) = serde_json::from_str::<Body>(text) else { return false };
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
    let text = super::json::check(body)?;
    let create: Create<'_> = read(text)?;
    let (place, text) = create.config.map_or(("", text), |config| ("config", config.get()));
    check_name(route, text).map_err(|error| inside(place, error))?;
    let PushConfigIn(mut config) = read(text).map_err(|error| inside(place, error))?;
    if let Some(parent) = &create.parent {
        agree("parent", route.task.clone(), Some(task_of("parent", parent)?))?;
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
    let Named { name: Some(name), push_notification_config: Some(_) } = read(text)? else { return Ok(()) };
    let (task, _) = split_name(&name)
        .ok_or_else(|| Error::invalid("name", "must be tasks/{id}/pushNotificationConfigs/{id}"))?;
    agree("name", route.task.clone(), Some(task)).map(drop)
}

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
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => write(out, request),
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

fn not_in_v03() -> Error {
    Error::new(ErrorKind::UnsupportedOperation)
        .with_message("This operation is not supported: A2A 0.3 cannot list tasks")
}

fn write_v03(out: &mut Vec<u8>, request: &Request) -> Result<(), Error> {
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            write(out, &SendOut(request))
        }
        Request::GetTask(GetTaskRequest { id, history_length, .. }) => {
            write(
                out,
                &IdOut { id, history_length: some_history(*history_length), config: None, metadata: None },
            );
        }
        Request::ListTasks(_) => return Err(not_in_v03()),
        Request::CancelTask(CancelTaskRequest { id, metadata, .. }) => {
            write(out, &IdOut { id, history_length: None, config: None, metadata: metadata.as_ref() });
        }
        Request::SubscribeToTask(SubscribeToTaskRequest { id, .. }) => write(out, &IdOut::new(id)),
        Request::CreatePushConfig(config) => write(out, &V03(config, Age::Today)),
        Request::GetPushConfig(GetPushConfigRequest { task_id, id, .. }) => {
            write(out, &IdOut { config: id.as_ref(), ..IdOut::new(task_id) });
        }
        Request::ListPushConfigs(ListPushConfigsRequest { task_id, .. }) => write(out, &IdOut::new(task_id)),
        Request::DeletePushConfig(DeletePushConfigRequest { task_id, id, .. }) => {
            write(out, &IdOut { config: Some(id), ..IdOut::new(task_id) });
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
    #[serde(rename = "pushNotificationConfigId", skip_serializing_if = "Option::is_none")]
    config: Option<&'a PushConfigId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a crate::model::Object>,
}

impl<'a> IdOut<'a> {
    fn new(id: &'a TaskId) -> Self {
        Self { id, history_length: None, config: None, metadata: None }
    }
}

/// A REST request as a client sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestRequest {
    /// The HTTP method.
    pub method: &'static str,
    /// The path and the query, to be put behind the interface's url.
    pub path: String,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
}

/// Writes a REST request as a client of this version.
///
/// # Errors
/// Unsupported: 0.3 cannot list tasks.
pub fn write_rest(request: &Request, version: Version) -> Result<RestRequest, Error> {
    let key = match version {
        Version::V1 => Key::PathV1,
        Version::V03 => Key::PathV03,
    };
    let (operation, tenant, task, config) = parts_of(request);
    let tenant = tenant.filter(|_| version == Version::V1);
    let route = Route { operation, key, tenant, task, config };
    let (method, path) = path::write(&route).ok_or_else(not_in_v03)?;
    let query = query_of(request, version);
    let path = if query.is_empty() { path } else { format!("{path}?{query}") };
    Ok(RestRequest { method, path, body: body_of(request, version) })
}

type Parts = (Operation, Option<String>, Option<TaskId>, Option<PushConfigId>);

/// What of a request goes into the path.
fn parts_of(request: &Request) -> Parts {
    match request {
        Request::SendMessage(r) => (Operation::SendMessage, r.tenant.clone(), None, None),
        Request::SendStreamingMessage(r) => (Operation::SendStreamingMessage, r.tenant.clone(), None, None),
        Request::GetTask(r) => (Operation::GetTask, r.tenant.clone(), Some(r.id.clone()), None),
        Request::ListTasks(r) => (Operation::ListTasks, r.tenant.clone(), None, None),
        Request::CancelTask(r) => (Operation::CancelTask, r.tenant.clone(), Some(r.id.clone()), None),
        Request::SubscribeToTask(r) => {
            (Operation::SubscribeToTask, r.tenant.clone(), Some(r.id.clone()), None)
        }
        Request::CreatePushConfig(r) => {
            (Operation::CreatePushConfig, r.tenant.clone(), r.task_id.clone(), None)
        }
        Request::GetPushConfig(r) => {
            (Operation::GetPushConfig, r.tenant.clone(), Some(r.task_id.clone()), r.id.clone())
        }
        Request::ListPushConfigs(r) => {
            (Operation::ListPushConfigs, r.tenant.clone(), Some(r.task_id.clone()), None)
        }
        Request::DeletePushConfig(r) => {
            (Operation::DeletePushConfig, r.tenant.clone(), Some(r.task_id.clone()), Some(r.id.clone()))
        }
        Request::GetExtendedAgentCard(r) => (Operation::GetExtendedAgentCard, r.tenant.clone(), None, None),
    }
}

fn query_of(request: &Request, version: Version) -> String {
    let text = |number: Option<i32>| number.map(|number| number.to_string());
    match request {
        Request::GetTask(request) => {
            let length = match version {
                Version::V1 => request.history_length,
                Version::V03 => some_history(request.history_length),
            };
            query::write(&[("historyLength", text(length))])
        }
        Request::ListTasks(request) => query::write(&[
            ("contextId", request.context_id.as_ref().map(ToString::to_string)),
            ("status", request.status.as_ref().map(ToString::to_string)),
            ("pageSize", text(request.page_size)),
            ("pageToken", request.page_token.clone()),
            ("historyLength", text(request.history_length)),
            ("statusTimestampAfter", request.status_timestamp_after.as_ref().map(ToString::to_string)),
            ("includeArtifacts", request.include_artifacts.as_ref().map(ToString::to_string)),
        ]),
        Request::ListPushConfigs(request) => query::write(&[
            ("pageSize", text(some_history(Some(request.page_size)))),
            ("pageToken", request.page_token.clone()),
        ]),
        Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::CreatePushConfig(_)
        | Request::GetPushConfig(_)
        | Request::DeletePushConfig(_)
        | Request::GetExtendedAgentCard(_) => String::new(),
    }
}

fn body_of(request: &Request, version: Version) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match (request, version) {
        (Request::SendMessage(request) | Request::SendStreamingMessage(request), Version::V1) => {
            write(&mut out, request)
        }
        (Request::SendMessage(request) | Request::SendStreamingMessage(request), Version::V03) => {
            write(&mut out, &Proto(request));
        }
        (Request::CancelTask(request), Version::V1) => write(&mut out, request),
        (Request::CancelTask(request), Version::V03) => {
            write(&mut out, &serde_json::json!({ "name": format!("tasks/{}", request.id) }));
        }
        (Request::CreatePushConfig(config), Version::V1) => write(&mut out, config),
        (Request::CreatePushConfig(config), Version::V03) => write(&mut out, &CreateConfig(config)),
        (
            Request::GetTask(_)
            | Request::ListTasks(_)
            | Request::SubscribeToTask(_)
            | Request::GetPushConfig(_)
            | Request::ListPushConfigs(_)
            | Request::DeletePushConfig(_)
            | Request::GetExtendedAgentCard(_),
            Version::V1 | Version::V03,
        ) => return None,
    }
    Some(out)
}
