//! `attache task get`, `cancel` and `subscribe`.

use attache::model::{CancelTaskRequest, Task, TaskId, TaskState};

use super::task_id;
use crate::args::{TaskGetArgs, TaskIdArgs};
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::progress;
use crate::session::Session;
use crate::settings::Settings;
use crate::task_follower::TaskFollower;

/// Gets a task; with `--wait`, polls until it ends or is interrupted.
pub(crate) async fn get(args: TaskGetArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let id = task_id(args.one.id, settings)?;
    let session = Session::open(settings, out).await?;
    if settings.wait {
        let mut follow = TaskFollower::for_task(&session, id.clone()).with_polling();
        let live = out.is_pretty();
        progress::follow_until_settled(&mut follow, &session, live, out).await?;
        if live && args.history.is_none() {
            return Ok(());
        }
    }
    let task = session.task(&id, args.history).await?;
    if !settings.wait {
        progress::warn_unless_completed(&task, out);
    }
    let resume = session.resume.for_task(&task);
    match args.history {
        Some(_) => out.print_task_with_history(&task, Some(&resume)),
        None => out.print_task(&task, Some(&resume)),
    }
}

/// Cancels a task. A task that is already canceled counts as success.
pub(crate) async fn cancel(args: TaskIdArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let id = task_id(args.id, settings)?;
    let session = Session::open(settings, out).await?;
    let request = CancelTaskRequest {
        id: id.clone(),
        metadata: settings.metadata.clone(),
        ..CancelTaskRequest::default()
    };
    let task = match session.call(session.client.cancel_task(request)).await {
        Ok(task) => task,
        Err(error) if error.code == "TaskNotCancelableError" => {
            not_cancelable(&session, &id, error).await?
        }
        Err(error) => return Err(error),
    };
    let resume = session.resume.for_task(&task);
    out.print_task(&task, Some(&resume))
}

/// Reads a task that cannot be canceled: success if it is canceled, else the error with its state.
async fn not_cancelable(session: &Session<'_>, id: &TaskId, error: CliError) -> CliResult<Task> {
    match session.task(id, Some(0)).await {
        Ok(task) if task.status.state == TaskState::Canceled => Ok(task),
        Ok(task) => {
            let message = format!("{}: the task is {}", error.message, task.status.state);
            Err(CliError { message, ..error }.hint(session.resume.get_command(id.as_str())))
        }
        Err(_) => Err(error),
    }
}

/// Follows the events of an existing task.
pub(crate) async fn subscribe(
    args: TaskIdArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let id = task_id(args.id, settings)?;
    let session = Session::open(settings, out).await?;
    if !session.supports_streaming() {
        out.note("the agent does not support streaming: polling instead");
    }
    let mut follow = TaskFollower::for_task(&session, id.clone()).require_streaming();
    // Text is always live; JSON is one final document without `--stream`.
    let live = settings.stream || !out.is_json();
    // An ended task cannot be followed; the hint is `task get`.
    progress::follow_until_settled(&mut follow, &session, live, out)
        .await
        .map_err(|error| match error.code.as_ref() {
            "UnsupportedOperationError" => error.hint(session.resume.get_command(id.as_str())),
            _ => error,
        })?;
    if live {
        return Ok(());
    }
    let folded = follow.task().cloned().unwrap_or_default();
    let task = match session.task(&id, None).await {
        Ok(copy) => follow.with_received(copy),
        Err(_) => folded,
    };
    let resume = session.resume.for_task(&task);
    out.print_task(&task, Some(&resume))
}
