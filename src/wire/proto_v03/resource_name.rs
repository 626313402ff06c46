//! Resource names, which 0.3 uses instead of ids in gRPC and REST.

use crate::model::{Error, PushConfigId, Result, TaskId};

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs/";

/// Returns `tasks/{id}`.
pub(super) fn task_name(id: &TaskId) -> String {
    format!("{TASKS}{id}")
}

/// Returns `tasks/{id}/pushNotificationConfigs/{config}`.
pub(super) fn push_config_name(task: &TaskId, id: &PushConfigId) -> String {
    format!("{TASKS}{task}{CONFIGS}{id}")
}

/// Parses `tasks/{id}`; the id may contain any characters. `field` is the JSON path for errors.
pub(super) fn parse_task_name(field: &str, name: &str) -> Result<TaskId> {
    let id = name.strip_prefix(TASKS).filter(|id| !id.is_empty());
    id.map(Into::into)
        .ok_or_else(|| Error::invalid(field, "must be tasks/{id}"))
}

/// Parses `tasks/{id}/pushNotificationConfigs/{config}`.
pub(super) fn parse_push_config_name(field: &str, name: &str) -> Result<(TaskId, PushConfigId)> {
    match parse_push_config_name_lenient(field, name)? {
        (task, Some(id)) => Ok((task, id)),
        (_, None) => Err(invalid_push_config_name(field)),
    }
}

/// Like [`parse_push_config_name`] with an optional config id. Without one, the 0.3 Python SDK
/// sends `None` and the JavaScript SDK an empty string.
pub(super) fn parse_push_config_name_lenient(
    field: &str,
    name: &str,
) -> Result<(TaskId, Option<PushConfigId>)> {
    let ids = name
        .strip_prefix(TASKS)
        .and_then(|ids| ids.rsplit_once(CONFIGS));
    let (task, id) = ids
        .filter(|(task, _)| !task.is_empty())
        .ok_or_else(|| invalid_push_config_name(field))?;
    Ok((
        task.into(),
        Some(id)
            .filter(|id| !matches!(*id, "" | "None"))
            .map(Into::into),
    ))
}

fn invalid_push_config_name(field: &str) -> Error {
    Error::invalid(field, "must be tasks/{id}/pushNotificationConfigs/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for id in ["t", "a:cancel", "a/b", "tasks/x", "ü"] {
            assert_eq!(
                parse_task_name("name", &task_name(&id.into())),
                Ok(id.into())
            );
            let name = push_config_name(&id.into(), &"c:1".into());
            assert_eq!(
                parse_push_config_name("name", &name),
                Ok((id.into(), "c:1".into()))
            );
        }
        let (task, id) = parse_push_config_name(
            "name",
            "tasks/a/pushNotificationConfigs/b/pushNotificationConfigs/c",
        )
        .unwrap();
        assert_eq!(
            (task.as_str(), id.as_str()),
            ("a/pushNotificationConfigs/b", "c")
        );
    }

    #[test]
    fn malformed_names_are_rejected_with_the_field() {
        for bad in ["", "t", "task/t", "tasks/", "/tasks/t", "Tasks/t"] {
            assert_eq!(
                parse_task_name("parent", bad).unwrap_err().violations()[0].field(),
                "parent",
                "{bad}"
            );
        }
        for bad in [
            "",
            "tasks/t",
            "tasks/t/pushNotificationConfigs/",
            "tasks//pushNotificationConfigs/c",
        ] {
            assert_eq!(
                parse_push_config_name("name", bad)
                    .unwrap_err()
                    .violations()[0]
                    .field(),
                "name",
                "{bad}"
            );
        }
        for none in ["", "None"] {
            let name = format!("tasks/t/pushNotificationConfigs/{none}");
            assert_eq!(
                parse_push_config_name_lenient("name", &name),
                Ok(("t".into(), None))
            );
        }
    }
}
