//! Paths of the REST binding in both versions, parsed and written by one canonical rule (01 §7).

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::negotiation::RouteVersion;
use crate::model::{Operation, PushConfigId, TaskId, Version};

/// Route of a REST request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestRoute {
    /// Operation.
    pub operation: Operation,
    /// Version that the path implies.
    pub route_version: RouteVersion,
    /// Tenant in the path.
    pub tenant: Option<String>,
    /// Task in the path.
    pub task: Option<TaskId>,
    /// Push configuration in the path.
    pub config: Option<PushConfigId>,
}

/// Failed routing. The value implies the version of the error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteError {
    /// The path does not exist.
    NotFound(RouteVersion),
    /// The path exists, but supports only these methods.
    MethodNotAllowed(RouteVersion, &'static str),
}

/// Parses the route of a request. `path` has no query and is relative to the agent's base.
///
/// # Errors
/// The path does not exist or does not support the HTTP method.
pub fn route(http_method: &str, path: &str) -> Result<RestRoute, RouteError> {
    let unreadable = if path.starts_with("/v1/") {
        RouteVersion::PathV03
    } else {
        RouteVersion::PathV1
    };
    let segments = split_segments(path).ok_or(RouteError::NotFound(unreadable))?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (route_version, tenant, rest) = match segments.as_slice() {
        ["v1", rest @ ..] => (RouteVersion::PathV03, None, rest),
        ["agent", "authenticatedExtendedCard"] => {
            (RouteVersion::PathV03, None, segments.as_slice())
        }
        [tenant, rest @ ..] if is_tenant(tenant) && !rest.is_empty() => {
            (RouteVersion::PathV1, Some(*tenant), rest)
        }
        rest => (RouteVersion::PathV1, None, rest),
    };
    let last = path.rsplit('/').next().unwrap_or_default();
    let matched = match_route(route_version, http_method, rest, last)
        .ok_or(RouteError::NotFound(route_version))?;
    let is_allowed = matched.methods.split(", ").any(|one| one == http_method);
    if !is_allowed {
        return Err(RouteError::MethodNotAllowed(route_version, matched.methods));
    }
    Ok(RestRoute {
        operation: matched.operation,
        route_version,
        tenant: tenant.map(str::to_owned),
        task: matched.task.map(TaskId::from),
        config: matched.config.map(PushConfigId::from),
    })
}

/// Match of a path.
struct RouteMatch<'a> {
    /// Supported HTTP methods, as in the `Allow` header.
    methods: &'static str,
    operation: Operation,
    task: Option<&'a str>,
    config: Option<&'a str>,
}

impl<'a> RouteMatch<'a> {
    fn new(methods: &'static str, operation: Operation) -> Self {
        Self {
            methods,
            operation,
            task: None,
            config: None,
        }
    }

    fn with_task(self, task: &'a str) -> Self {
        Self {
            task: Some(task),
            ..self
        }
    }
}

/// Matches a path without its version or tenant prefix. Some paths are two operations, by method.
/// `last` is the last segment before decoding.
fn match_route<'a>(
    route_version: RouteVersion,
    http_method: &str,
    segments: &[&'a str],
    last: &str,
) -> Option<RouteMatch<'a>> {
    let v03 = route_version == RouteVersion::PathV03;
    let extended_card = || RouteMatch::new("GET", Operation::GetExtendedAgentCard);
    Some(match *segments {
        ["message:send"] => RouteMatch::new("POST", Operation::SendMessage),
        ["message:stream"] => RouteMatch::new("POST", Operation::SendStreamingMessage),
        ["tasks"] if !v03 => RouteMatch::new("GET", Operation::ListTasks),
        ["extendedAgentCard"] if !v03 => extended_card(),
        ["card"] | ["agent", "authenticatedExtendedCard"] if v03 => extended_card(),
        ["tasks", task] => match_task(task, last)?,
        ["tasks", task, "pushNotificationConfigs"] if !task.is_empty() => {
            match_push_configs(http_method, task)
        }
        // Misspelled in the annotation of the 0.3.0 proto.
        ["task", task, "pushNotificationConfigs"] if v03 && !task.is_empty() => {
            match_push_configs(http_method, task)
        }
        ["tasks", task, "pushNotificationConfigs", config]
            if !task.is_empty() && !config.is_empty() =>
        {
            match_push_config(http_method, task, config)
        }
        _ => return None,
    })
}

/// Matches `{task}` and `{task}:{verb}`. The verb follows the last unencoded colon; an encoded
/// colon belongs to the id (S83).
fn match_task<'a>(segment: &'a str, sent: &str) -> Option<RouteMatch<'a>> {
    let (matched, task) = match sent.rsplit_once(':').map(|(_, verb)| verb) {
        Some("cancel") => (
            RouteMatch::new("POST", Operation::CancelTask),
            segment.strip_suffix(":cancel")?,
        ),
        // GET in the proto, POST in the text of the specification.
        Some("subscribe") => (
            RouteMatch::new("GET, POST", Operation::SubscribeToTask),
            segment.strip_suffix(":subscribe")?,
        ),
        _ => (RouteMatch::new("GET", Operation::GetTask), segment),
    };
    (!task.is_empty()).then(|| matched.with_task(task))
}

fn match_push_configs<'a>(http_method: &str, task: &'a str) -> RouteMatch<'a> {
    let operation = if http_method == "POST" {
        Operation::CreatePushConfig
    } else {
        Operation::ListPushConfigs
    };
    RouteMatch::new("GET, POST", operation).with_task(task)
}

fn match_push_config<'a>(http_method: &str, task: &'a str, config: &'a str) -> RouteMatch<'a> {
    let operation = if http_method == "DELETE" {
        Operation::DeletePushConfig
    } else {
        Operation::GetPushConfig
    };
    RouteMatch {
        config: Some(config),
        ..RouteMatch::new("GET, DELETE", operation).with_task(task)
    }
}

/// Splits before decoding, so that an encoded slash belongs to an id.
fn split_segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/')
        .map(|segment| Some(percent_decode_str(segment).decode_utf8().ok()?.into_owned()))
        .collect()
}

/// Whether a first segment is a tenant and not a route.
#[must_use]
pub fn is_tenant(segment: &str) -> bool {
    let reserved = matches!(
        segment,
        "v1" | "tasks" | "message:send" | "message:stream" | "extendedAgentCard"
    );
    !segment.is_empty() && !segment.starts_with('.') && !reserved
}

/// Characters encoded in a segment, so that every server splits the path in the same way.
const ENCODED_IN_SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b';')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Also encodes colons, for an id that ends like a verb.
const ENCODED_IN_SEGMENT_WITH_COLON: &AsciiSet = &ENCODED_IN_SEGMENT.add(b':');

/// Encodes a name as one path segment.
#[must_use]
pub fn encode_segment(name: &str) -> String {
    utf8_percent_encode(name, ENCODED_IN_SEGMENT).to_string()
}

/// Returns HTTP method and path of a route; `None` if 0.3 lacks the operation.
#[must_use]
pub fn write_route(route: &RestRoute) -> Option<(&'static str, String)> {
    let version = route.route_version.version();
    let task = route.task.as_ref().map_or("", TaskId::as_str);
    let verb_like = task.ends_with(":cancel") || task.ends_with(":subscribe");
    let task = utf8_percent_encode(
        task,
        if verb_like {
            ENCODED_IN_SEGMENT_WITH_COLON
        } else {
            ENCODED_IN_SEGMENT
        },
    );
    let config = route.config.as_ref().map_or("", PushConfigId::as_str);
    let config = utf8_percent_encode(config, ENCODED_IN_SEGMENT);
    let (method, path) = match route.operation {
        Operation::SendMessage => ("POST", "/message:send".to_owned()),
        Operation::SendStreamingMessage => ("POST", "/message:stream".to_owned()),
        Operation::GetTask => ("GET", format!("/tasks/{task}")),
        Operation::ListTasks if version == Version::V03 => return None,
        Operation::ListTasks => ("GET", "/tasks".to_owned()),
        Operation::CancelTask => ("POST", format!("/tasks/{task}:cancel")),
        Operation::SubscribeToTask => ("GET", format!("/tasks/{task}:subscribe")),
        Operation::CreatePushConfig => ("POST", format!("/tasks/{task}/pushNotificationConfigs")),
        Operation::GetPushConfig => (
            "GET",
            format!("/tasks/{task}/pushNotificationConfigs/{config}"),
        ),
        Operation::ListPushConfigs => ("GET", format!("/tasks/{task}/pushNotificationConfigs")),
        Operation::DeletePushConfig => (
            "DELETE",
            format!("/tasks/{task}/pushNotificationConfigs/{config}"),
        ),
        Operation::GetExtendedAgentCard if version == Version::V03 => ("GET", "/card".to_owned()),
        Operation::GetExtendedAgentCard => ("GET", "/extendedAgentCard".to_owned()),
    };
    Some(match (version, &route.tenant) {
        (Version::V03, _) => (method, format!("/v1{path}")),
        (Version::V1, None) => (method, path),
        (Version::V1, Some(tenant)) => (
            method,
            format!("/{}{path}", utf8_percent_encode(tenant, ENCODED_IN_SEGMENT)),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(
        http_method: &str,
        path: &str,
    ) -> (
        Operation,
        RouteVersion,
        Option<String>,
        Option<String>,
        Option<String>,
    ) {
        let route =
            route(http_method, path).unwrap_or_else(|no| panic!("{http_method} {path}: {no:?}"));
        let text = |id: &dyn AsRef<str>| id.as_ref().to_owned();
        (
            route.operation,
            route.route_version,
            route.tenant,
            route.task.map(|id| text(&id)),
            route.config.map(|id| text(&id)),
        )
    }

    #[test]
    fn routes_round_trip_in_both_versions_and_with_a_tenant() {
        for operation in Operation::ALL {
            for (route_version, tenant) in [
                (RouteVersion::PathV03, None),
                (RouteVersion::PathV1, None),
                (RouteVersion::PathV1, Some("brest")),
            ] {
                let has_task = !matches!(
                    operation,
                    Operation::SendMessage
                        | Operation::SendStreamingMessage
                        | Operation::ListTasks
                        | Operation::GetExtendedAgentCard
                );
                let has_config = matches!(
                    operation,
                    Operation::GetPushConfig | Operation::DeletePushConfig
                );
                let route = RestRoute {
                    operation,
                    route_version,
                    tenant: tenant.map(str::to_owned),
                    task: has_task.then(|| TaskId::from("a/b:c %é;{}")),
                    config: has_config.then(|| PushConfigId::from("x?y#z")),
                };
                let Some((method, path)) = write_route(&route) else {
                    assert_eq!(
                        (operation, route_version),
                        (Operation::ListTasks, RouteVersion::PathV03)
                    );
                    continue;
                };
                assert_eq!(super::route(method, &path), Ok(route), "{method} {path}");
            }
        }
    }

    #[test]
    fn s83_verb_follows_the_last_colon() {
        let task = |id: &str| Some(id.to_owned());
        assert_eq!(on("POST", "/tasks/a:b:cancel").3, task("a:b"));
        assert_eq!(on("POST", "/tasks/a:cancel:cancel").3, task("a:cancel"));
        assert_eq!(on("GET", "/tasks/a:b").0, Operation::GetTask);
        assert_eq!(on("GET", "/tasks/a:b").3, task("a:b"));
        assert_eq!(on("GET", "/tasks/a%2Fb").3, task("a/b"));
        assert_eq!(on("GET", "/tasks/a%3Acancel").3, task("a:cancel"));
        assert_eq!(on("POST", "/tasks/a%3Acancel:cancel").3, task("a:cancel"));
        assert_eq!(
            on("POST", "/tasks/x:subscribe").0,
            Operation::SubscribeToTask
        );
        assert_eq!(on("GET", "/v1/tasks/x:subscribe").1, RouteVersion::PathV03);
        assert_eq!(
            on("POST", "/v1/task/x/pushNotificationConfigs").0,
            Operation::CreatePushConfig
        );
        assert_eq!(
            on("GET", "/agent/authenticatedExtendedCard").1,
            RouteVersion::PathV03
        );
    }

    #[test]
    fn s83_unknown_paths_are_not_found() {
        for path in [
            "",
            "/",
            "//tasks",
            "/tasks/",
            "/tasks//",
            "/tasks/%ff",
            "/v1/tasks",
            "/v1/extendedAgentCard",
            "/a/b/tasks",
            "/tasks/x/y",
            "/message:fetch",
            "/.well/tasks",
            "/tasks/:cancel",
            "/v1/v1/message:send",
            "/tasks/x/pushNotificationConfigs/",
            "/card",
            "/tasks/x/pushNotificationConfigs/a/b",
        ] {
            assert!(
                matches!(route("GET", path), Err(RouteError::NotFound(_))),
                "{path}: {:?}",
                route("GET", path)
            );
        }
        assert_eq!(
            route("GET", "/message:send"),
            Err(RouteError::MethodNotAllowed(RouteVersion::PathV1, "POST"))
        );
        assert_eq!(
            route("PUT", "/v1/tasks/x"),
            Err(RouteError::MethodNotAllowed(RouteVersion::PathV03, "GET"))
        );
    }
}
