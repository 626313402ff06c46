//! `attache task wait`: waits until a task ends, is interrupted or reaches a given state.

use attache::model::TaskState;

use super::task_id;
use super::task_list::parse_state;
use crate::args::TaskWaitArgs;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::progress;
use crate::session::Session;
use crate::settings::Settings;
use crate::task_follower::TaskFollower;

pub(crate) async fn run(
    args: TaskWaitArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<u8> {
    let id = task_id(args.one.id, settings)?;
    let through = args
        .through
        .iter()
        .map(|word| interruption(word))
        .collect::<CliResult<Vec<_>>>()?;
    let until = args.until.as_deref().map(parse_state).transpose()?;
    let session = Session::open(settings, out).await?;
    let mut follow = TaskFollower::for_task(&session, id.clone())
        .through(through)
        .until(until);
    let live = settings.stream || out.is_pretty();
    progress::follow_until_settled(&mut follow, &session, live, out).await?;
    let task = session.task(&id, None).await?;
    if !live {
        let resume = session.resume.for_task(&task);
        out.print_task(&task, Some(&resume))?;
    }
    Ok(if args.exit_on_outcome {
        outcome_code(task.status.state)
    } else {
        0
    })
}

fn interruption(word: &str) -> CliResult<TaskState> {
    match word {
        "auth" => Ok(TaskState::AuthRequired),
        "input" => Ok(TaskState::InputRequired),
        _ => Err(CliError::usage(format!(
            "--through {word} must be auth or input"
        ))),
    }
}

/// The exit code of `task wait --exit-on-outcome` and `send --exit-status`.
pub(crate) fn outcome_code(state: TaskState) -> u8 {
    match state {
        TaskState::Failed => 10,
        TaskState::Rejected => 11,
        TaskState::Canceled => 12,
        TaskState::InputRequired => 13,
        TaskState::AuthRequired => 14,
        TaskState::Completed
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Unspecified => 0,
    }
}
