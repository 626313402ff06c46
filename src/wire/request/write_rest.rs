//! Serialization of REST requests.

use super::write_params::list_tasks_unsupported;
use crate::model::{Error, Operation, PushConfigId, Request, TaskId, Version};
use crate::wire::negotiation::RouteVersion;
use crate::wire::path::{self, RestRoute};
use crate::wire::query;
use crate::wire::v03::proto_json::{ProtoJsonCreateConfig, V03ProtoJson};
use crate::wire::v03::zero_as_absent;
use crate::wire::write_json;

/// REST request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestRequest {
    /// HTTP method.
    pub method: &'static str,
    /// Path and query, relative to the interface URL.
    pub path: String,
    /// Body.
    pub body: Option<Vec<u8>>,
}

/// Writes a REST request in a version.
///
/// # Errors
/// Unsupported operation: 0.3 cannot list tasks.
pub fn write_rest(request: &Request, version: Version) -> Result<RestRequest, Error> {
    let route_version = match version {
        Version::V1 => RouteVersion::PathV1,
        Version::V03 => RouteVersion::PathV03,
    };
    let tenant = request.tenant().filter(|_| version == Version::V1);
    let route = RestRoute {
        operation: request.operation(),
        route_version,
        tenant: tenant.map(str::to_owned),
        task: task_in_path(request),
        config: config_in_path(request),
    };
    check_segments(&route)?;
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

/// Rejects names that a path cannot transport: `.` and `..`, which URL libraries resolve, tenants
/// that look like routes, and empty ids.
fn check_segments(route: &RestRoute) -> Result<(), Error> {
    let is_dots = |text: &str| matches!(text, "." | "..");
    let invalid = |field| Error::invalid(field, "must be usable as a path segment");
    if let Some(tenant) = &route.tenant
        && (is_dots(tenant) || !path::is_tenant(tenant))
    {
        return Err(invalid("tenant"));
    }
    if route
        .task
        .as_ref()
        .is_some_and(|task| is_dots(task.as_str()))
    {
        return Err(invalid("id"));
    }
    let needs_config = matches!(
        route.operation,
        Operation::GetPushConfig | Operation::DeletePushConfig
    );
    let has_config = route.config.as_ref().is_some_and(|id| !id.is_empty());
    let is_config_dots = route.config.as_ref().is_some_and(|id| is_dots(id.as_str()));
    if is_config_dots || needs_config && !has_config {
        return Err(invalid("id"));
    }
    Ok(())
}

/// Returns the task id for the path.
fn task_in_path(request: &Request) -> Option<TaskId> {
    match request {
        Request::GetTask(request) => Some(request.id.clone()),
        Request::CancelTask(request) => Some(request.id.clone()),
        Request::SubscribeToTask(request) => Some(request.id.clone()),
        Request::CreatePushConfig(config) => config.task_id.clone(),
        Request::GetPushConfig(request) => Some(request.task_id.clone()),
        Request::ListPushConfigs(request) => Some(request.task_id.clone()),
        Request::DeletePushConfig(request) => Some(request.task_id.clone()),
        Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::ListTasks(_)
        | Request::GetExtendedAgentCard(_) => None,
    }
}

/// Returns the push configuration id for the path.
fn config_in_path(request: &Request) -> Option<PushConfigId> {
    match request {
        Request::GetPushConfig(request) => request.id.clone(),
        Request::DeletePushConfig(request) => Some(request.id.clone()),
        Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::GetTask(_)
        | Request::ListTasks(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::CreatePushConfig(_)
        | Request::ListPushConfigs(_)
        | Request::GetExtendedAgentCard(_) => None,
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
