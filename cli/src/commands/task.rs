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

/// Looks once, or with `--wait` until the task is settled.
pub(crate) async fn get(args: TaskGetArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let id = task_id(args.one.id, settings)?;
    let session = Session::open(settings, out).await?;
    if settings.wait {
        let mut follow = TaskFollower::for_task(&session, id.clone()).with_polling();
        progress::follow_until_settled(&mut follow, &session, false, out).await?;
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

/// Asks for the end of a task; one that is canceled already is what was asked for.
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
        Err(failure) if failure.code == "TaskNotCancelableError" => {
            not_cancelable(&session, &id, failure).await?
        }
        Err(failure) => return Err(failure),
    };
    let resume = session.resume.for_task(&task);
    out.print_task(&task, Some(&resume))
}

async fn not_cancelable(session: &Session<'_>, id: &TaskId, failure: CliError) -> CliResult<Task> {
    match session.task(id, Some(0)).await {
        Ok(task) if task.status.state == TaskState::Canceled => Ok(task),
        Ok(task) => {
            let message = format!("{}: the task is {}", failure.message, task.status.state);
            Err(CliError { message, ..failure }.hint(session.resume.get_command(id.as_str())))
        }
        Err(_) => Err(failure),
    }
}

/// Follows a task that is there.
pub(crate) async fn subscribe(
    args: TaskIdArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let id = task_id(args.id, settings)?;
    let session = Session::open(settings, out).await?;
    if !session.supports_streaming() {
        out.note("the agent does not stream: looking now and then instead");
    }
    let mut follow = TaskFollower::for_task(&session, id.clone()).require_streaming();
    // Text is always live; of JSON there is one document, unless a stream was asked for.
    let live = settings.stream || !out.is_json();
    // A task that has ended cannot be followed, but looked at.
    progress::follow_until_settled(&mut follow, &session, live, out)
        .await
        .map_err(|failure| match failure.code.as_ref() {
            "UnsupportedOperationError" => failure.hint(session.resume.get_command(id.as_str())),
            _ => failure,
        })?;
    if live {
        return Ok(());
    }
    let folded = follow.task().cloned().unwrap_or_default();
    let task = session.task(&id, None).await.unwrap_or(folded);
    let resume = session.resume.for_task(&task);
    out.print_task(&task, Some(&resume))
}
