//! JSON-RPC method names of all versions (04 §1).

use super::negotiation::RouteVersion;
use crate::model::{Operation, Version};

/// JSON-RPC method: the operation and the version that its name implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonRpcMethod {
    /// Operation.
    pub operation: Operation,
    /// Version that the name implies.
    pub route_version: RouteVersion,
}

/// Returns the official names in 1.0 and 0.3.
fn method_names(operation: Operation) -> (&'static str, Option<&'static str>) {
    match operation {
        Operation::SendMessage => ("SendMessage", Some("message/send")),
        Operation::SendStreamingMessage => ("SendStreamingMessage", Some("message/stream")),
        Operation::GetTask => ("GetTask", Some("tasks/get")),
        Operation::ListTasks => ("ListTasks", None),
        Operation::CancelTask => ("CancelTask", Some("tasks/cancel")),
        Operation::SubscribeToTask => ("SubscribeToTask", Some("tasks/resubscribe")),
        Operation::CreatePushConfig => (
            "CreateTaskPushNotificationConfig",
            Some("tasks/pushNotificationConfig/set"),
        ),
        Operation::GetPushConfig => (
            "GetTaskPushNotificationConfig",
            Some("tasks/pushNotificationConfig/get"),
        ),
        Operation::ListPushConfigs => (
            "ListTaskPushNotificationConfigs",
            Some("tasks/pushNotificationConfig/list"),
        ),
        Operation::DeletePushConfig => (
            "DeleteTaskPushNotificationConfig",
            Some("tasks/pushNotificationConfig/delete"),
        ),
        Operation::GetExtendedAgentCard => (
            "GetExtendedAgentCard",
            Some("agent/getAuthenticatedExtendedCard"),
        ),
    }
}

/// Accepted aliases: names of 0.1, of drafts, and of other implementations (04 §1).
const ALIASES: [(&str, Operation, RouteVersion); 9] = [
    (
        "tasks/send",
        Operation::SendMessage,
        RouteVersion::MethodV01,
    ),
    (
        "tasks/sendSubscribe",
        Operation::SendStreamingMessage,
        RouteVersion::MethodV01,
    ),
    (
        "tasks/pushNotification/set",
        Operation::CreatePushConfig,
        RouteVersion::MethodV01,
    ),
    (
        "tasks/pushNotification/get",
        Operation::GetPushConfig,
        RouteVersion::MethodV01,
    ),
    (
        "tasks/subscribe",
        Operation::SubscribeToTask,
        RouteVersion::MethodV03,
    ),
    ("tasks/list", Operation::ListTasks, RouteVersion::MethodV03),
    (
        "agent/authenticatedExtendedCard",
        Operation::GetExtendedAgentCard,
        RouteVersion::MethodV03,
    ),
    (
        "ListTaskPushNotificationConfig",
        Operation::ListPushConfigs,
        RouteVersion::MethodV1,
    ),
    (
        "SetTaskPushNotificationConfig",
        Operation::CreatePushConfig,
        RouteVersion::MethodV1,
    ),
];

/// Names of `GetExtendedAgentCard` in all versions and drafts, newest first.
pub const EXTENDED_CARD_METHODS: [&str; 3] = [
    "GetExtendedAgentCard",
    "agent/getAuthenticatedExtendedCard",
    "agent/authenticatedExtendedCard",
];

/// Returns the method name that a client of this version sends; `None` for listing tasks in 0.3.
#[must_use]
pub fn method_name(operation: Operation, version: Version) -> Option<&'static str> {
    let (v1, v03) = method_names(operation);
    match version {
        Version::V1 => Some(v1),
        Version::V03 => v03,
    }
}

/// Finds a method by name.
///
/// # Errors
/// The method is unknown. The value is the version in which to report that.
pub fn find_method(name: &str) -> Result<JsonRpcMethod, RouteVersion> {
    for operation in Operation::ALL {
        let (v1, v03) = method_names(operation);
        if name == v1 {
            return Ok(JsonRpcMethod {
                operation,
                route_version: RouteVersion::MethodV1,
            });
        }
        if Some(name) == v03 {
            return Ok(JsonRpcMethod {
                operation,
                route_version: RouteVersion::MethodV03,
            });
        }
    }
    let alias = ALIASES.into_iter().find(|(alias, ..)| *alias == name);
    let unknown = if name.starts_with(|c: char| c.is_ascii_uppercase()) {
        RouteVersion::MethodV1
    } else {
        RouteVersion::MethodV03
    };
    alias
        .map(|(_, operation, route_version)| JsonRpcMethod {
            operation,
            route_version,
        })
        .ok_or(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_operations_map_both_ways() {
        for operation in Operation::ALL {
            assert_eq!(
                find_method(method_name(operation, Version::V1).unwrap()),
                Ok(JsonRpcMethod {
                    operation,
                    route_version: RouteVersion::MethodV1
                })
            );
            if let Some(old) = method_name(operation, Version::V03) {
                assert_eq!(
                    find_method(old),
                    Ok(JsonRpcMethod {
                        operation,
                        route_version: RouteVersion::MethodV03
                    })
                );
            }
        }
        assert_eq!(method_name(Operation::ListTasks, Version::V03), None);
    }

    #[test]
    fn aliases_are_found_and_unknown_names_imply_a_version() {
        assert_eq!(
            find_method("tasks/send").unwrap().operation,
            Operation::SendMessage
        );
        assert_eq!(
            find_method("tasks/send").unwrap().route_version,
            RouteVersion::MethodV01
        );
        assert_eq!(
            find_method("tasks/list").unwrap().operation,
            Operation::ListTasks
        );
        assert_eq!(
            find_method("SetTaskPushNotificationConfig")
                .unwrap()
                .operation,
            Operation::CreatePushConfig
        );
        assert_eq!(
            find_method("tasks/frobnicate"),
            Err(RouteVersion::MethodV03)
        );
        assert_eq!(find_method("Frobnicate"), Err(RouteVersion::MethodV1));
        assert_eq!(find_method("sendmessage"), Err(RouteVersion::MethodV03));
    }
}
