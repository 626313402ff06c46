//! Writing REST requests.

use super::write_params::list_tasks_unsupported;
use crate::model::{Error, Operation, PushConfigId, Request, TaskId, Version};
use crate::wire::negotiation::RouteVersion;
use crate::wire::path::{self, RestRoute};
use crate::wire::query;
use crate::wire::v03::proto_json::{ProtoJsonCreateConfig, V03ProtoJson};
use crate::wire::v03::zero_as_absent;
use crate::wire::write_json;

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
    let route_version = match version {
        Version::V1 => RouteVersion::PathV1,
        Version::V03 => RouteVersion::PathV03,
    };
    let (operation, tenant, task, config) = path_parts(request);
    let tenant = tenant.filter(|_| version == Version::V1);
    check_segments(tenant.as_deref(), task.as_ref(), config.as_ref(), operation)?;
    let route = RestRoute {
        operation,
        route_version,
        tenant,
        task,
        config,
    };
    let (method, path) = path::write_route(&route).ok_or_else(list_tasks_unsupported)?;
    let query = write_request_query(request, version);
    let path = if query.is_empty() {
        path
    } else {
        format!("{path}?{query}")
    };
    Ok(RestRequest {
        method,
        path,
        body: write_request_body(request, version),
    })
}

/// Refuses what a path cannot carry: URL libraries fold dots away, some names are routes, and nothing is no name.
fn check_segments(
    tenant: Option<&str>,
    task: Option<&TaskId>,
    config: Option<&PushConfigId>,
    operation: Operation,
) -> Result<(), Error> {
    let dots = |text: &str| matches!(text, "." | "..");
    if tenant.is_some_and(|tenant| dots(tenant) || !path::is_tenant(tenant)) {
        return Err(Error::invalid(
            "tenant",
            "must be a name that can stand in a path",
        ));
    }
    if task.is_some_and(|task| dots(task.as_str())) {
        return Err(Error::invalid(
            "id",
            "must be a name that can stand in a path",
        ));
    }
    let needed = matches!(
        operation,
        Operation::GetPushConfig | Operation::DeletePushConfig
    );
    if config.is_some_and(|config| dots(config.as_str()))
        || needed && config.is_none_or(PushConfigId::is_empty)
    {
        return Err(Error::invalid(
            "id",
            "must be a name that can stand in a path",
        ));
    }
    Ok(())
}

type PathParts = (
    Operation,
    Option<String>,
    Option<TaskId>,
    Option<PushConfigId>,
);

/// What of a request goes into the path.
fn path_parts(request: &Request) -> PathParts {
    match request {
        Request::SendMessage(r) => (Operation::SendMessage, r.tenant.clone(), None, None),
        Request::SendStreamingMessage(r) => (
            Operation::SendStreamingMessage,
            r.tenant.clone(),
            None,
            None,
        ),
        Request::GetTask(r) => (
            Operation::GetTask,
            r.tenant.clone(),
            Some(r.id.clone()),
            None,
        ),
        Request::ListTasks(r) => (Operation::ListTasks, r.tenant.clone(), None, None),
        Request::CancelTask(r) => (
            Operation::CancelTask,
            r.tenant.clone(),
            Some(r.id.clone()),
            None,
        ),
        Request::SubscribeToTask(r) => (
            Operation::SubscribeToTask,
            r.tenant.clone(),
            Some(r.id.clone()),
            None,
        ),
        Request::CreatePushConfig(r) => (
            Operation::CreatePushConfig,
            r.tenant.clone(),
            r.task_id.clone(),
            None,
        ),
        Request::GetPushConfig(r) => (
            Operation::GetPushConfig,
            r.tenant.clone(),
            Some(r.task_id.clone()),
            r.id.clone(),
        ),
        Request::ListPushConfigs(r) => (
            Operation::ListPushConfigs,
            r.tenant.clone(),
            Some(r.task_id.clone()),
            None,
        ),
        Request::DeletePushConfig(r) => (
            Operation::DeletePushConfig,
            r.tenant.clone(),
            Some(r.task_id.clone()),
            Some(r.id.clone()),
        ),
        Request::GetExtendedAgentCard(r) => (
            Operation::GetExtendedAgentCard,
            r.tenant.clone(),
            None,
            None,
        ),
    }
}

fn write_request_query(request: &Request, version: Version) -> String {
    let text = |number: Option<i32>| number.map(|number| number.to_string());
    match request {
        Request::GetTask(request) => {
            let length = match version {
                Version::V1 => request.history_length,
                Version::V03 => zero_as_absent(request.history_length),
            };
            query::write_query(&[("historyLength", text(length))])
        }
        Request::ListTasks(request) => query::write_query(&[
            (
                "contextId",
                request.context_id.as_ref().map(ToString::to_string),
            ),
            ("status", request.status.as_ref().map(ToString::to_string)),
            ("pageSize", text(request.page_size)),
            ("pageToken", request.page_token.clone()),
            ("historyLength", text(request.history_length)),
            (
                "statusTimestampAfter",
                request
                    .status_timestamp_after
                    .as_ref()
                    .map(ToString::to_string),
            ),
            (
                "includeArtifacts",
                request.include_artifacts.as_ref().map(ToString::to_string),
            ),
        ]),
        Request::ListPushConfigs(request) => query::write_query(&[
            ("pageSize", text(zero_as_absent(Some(request.page_size)))),
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

fn write_request_body(request: &Request, version: Version) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match (request, version) {
        (Request::SendMessage(request) | Request::SendStreamingMessage(request), Version::V1) => {
            write_json(&mut out, request)
        }
        (Request::SendMessage(request) | Request::SendStreamingMessage(request), Version::V03) => {
            write_json(&mut out, &V03ProtoJson(&**request));
        }
        (Request::CancelTask(request), Version::V1) => write_json(&mut out, request),
        (Request::CancelTask(request), Version::V03) => {
            write_json(
                &mut out,
                &serde_json::json!({ "name": format!("tasks/{}", request.id) }),
            );
        }
        (Request::CreatePushConfig(config), Version::V1) => write_json(&mut out, config),
        (Request::CreatePushConfig(config), Version::V03) => {
            write_json(&mut out, &ProtoJsonCreateConfig(config))
        }
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
