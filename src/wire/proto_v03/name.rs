//! Resource names: how 0.3 says ids in gRPC and REST.

use crate::model::{Error, PushConfigId, Result, TaskId};

const TASKS: &str = "tasks/";
const CONFIGS: &str = "/pushNotificationConfigs/";

/// `tasks/{id}`.
pub(super) fn of_task(id: &TaskId) -> String {
    format!("{TASKS}{id}")
}

/// `tasks/{id}/pushNotificationConfigs/{config}`.
pub(super) fn of_config(task: &TaskId, id: &PushConfigId) -> String {
    format!("{TASKS}{task}{CONFIGS}{id}")
}

/// The id in `tasks/{id}`, whatever characters it has; `field` says where the name stood.
pub(super) fn task(field: &str, name: &str) -> Result<TaskId> {
    let id = name.strip_prefix(TASKS).filter(|id| !id.is_empty());
    id.map(Into::into)
        .ok_or_else(|| Error::invalid(field, "must be tasks/{id}"))
}

/// The ids in `tasks/{id}/pushNotificationConfigs/{config}`.
pub(super) fn config(field: &str, name: &str) -> Result<(TaskId, PushConfigId)> {
    match any_config(field, name)? {
        (task, Some(id)) => Ok((task, id)),
        (_, None) => Err(wrong_config(field)),
    }
}

/// The same where the id of the registration may be missing: the 0.3 SDK for Python then writes `None`, the one
/// for JavaScript nothing.
pub(super) fn any_config(field: &str, name: &str) -> Result<(TaskId, Option<PushConfigId>)> {
    let ids = name
        .strip_prefix(TASKS)
        .and_then(|ids| ids.rsplit_once(CONFIGS));
    let (task, id) = ids
        .filter(|(task, _)| !task.is_empty())
        .ok_or_else(|| wrong_config(field))?;
    Ok((
        task.into(),
        Some(id)
            .filter(|id| !matches!(*id, "" | "None"))
            .map(Into::into),
    ))
}

fn wrong_config(field: &str) -> Error {
    Error::invalid(field, "must be tasks/{id}/pushNotificationConfigs/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_where_they_were_joined() {
        for id in ["t", "a:cancel", "a/b", "tasks/x", "ü"] {
            assert_eq!(task("name", &of_task(&id.into())), Ok(id.into()));
            let name = of_config(&id.into(), &"c:1".into());
            assert_eq!(config("name", &name), Ok((id.into(), "c:1".into())));
        }
        let (task, id) = config(
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
                task("parent", bad).unwrap_err().violations()[0].field(),
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
                config("name", bad).unwrap_err().violations()[0].field(),
                "name",
                "{bad}"
            );
        }
        for none in ["", "None"] {
            let name = format!("tasks/t/pushNotificationConfigs/{none}");
            assert_eq!(any_config("name", &name), Ok(("t".into(), None)));
        }
    }
}
