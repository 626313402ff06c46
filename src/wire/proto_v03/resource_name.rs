//! Resource names: how 0.3 says ids in gRPC and REST.

use crate::model::{Error, PushConfigId, Result, TaskId};

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs/";

/// `tasks/{id}`.
pub(super) fn task_name(id: &TaskId) -> String {
    format!("{TASKS}{id}")
}

/// `tasks/{id}/pushNotificationConfigs/{config}`.
pub(super) fn push_config_name(task: &TaskId, id: &PushConfigId) -> String {
    format!("{TASKS}{task}{CONFIGS}{id}")
}

/// The id in `tasks/{id}`, whatever characters it has; `field` says where the name stood.
pub(super) fn parse_task_name(field: &str, name: &str) -> Result<TaskId> {
    let id = name.strip_prefix(TASKS).filter(|id| !id.is_empty());
    id.map(Into::into)
        .ok_or_else(|| Error::invalid(field, "must be tasks/{id}"))
}

/// The ids in `tasks/{id}/pushNotificationConfigs/{config}`.
pub(super) fn parse_push_config_name(field: &str, name: &str) -> Result<(TaskId, PushConfigId)> {
    match parse_push_config_name_lenient(field, name)? {
        (task, Some(id)) => Ok((task, id)),
        (_, None) => Err(invalid_push_config_name(field)),
    }
}

/// The same where the id of the registration may be missing: the 0.3 SDK for Python then writes `None`, the one
/// for JavaScript nothing.
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
    fn names_are_split_where_they_were_joined() {
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
    fn another_shape_is_refused_and_the_field_named() {
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
