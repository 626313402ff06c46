//! `attache task wait`: until a task is settled, and beyond where that is asked for.

use attache::model::TaskState;

use super::task_id;
use super::task_list::state;
use crate::args::TaskWait;
use crate::failure::{Failure, Outcome};
use crate::follow::Follow;
use crate::output::Output;
use crate::session::Session;
use crate::settings::Settings;
use crate::waiting;

pub(crate) async fn run(args: TaskWait, settings: &Settings, out: &mut Output) -> Outcome<u8> {
    let id = task_id(args.one.id, settings)?;
    let through = args
        .through
        .iter()
        .map(|word| interruption(word))
        .collect::<Outcome<Vec<_>>>()?;
    let until = args.until.as_deref().map(state).transpose()?;
    let session = Session::open(settings, out).await?;
    let mut follow = Follow::task(&session, id.clone())
        .through(through)
        .until(until);
    waiting::until_settled(&mut follow, &session, settings.stream, out).await?;
    let task = session.task(&id, None).await?;
    if !settings.stream {
        let resume = session.resume.of(&task);
        out.task(&task, Some(&resume))?;
    }
    Ok(if args.exit_on_outcome {
        code(task.status.state)
    } else {
        0
    })
}

fn interruption(word: &str) -> Outcome<TaskState> {
    match word {
        "auth" => Ok(TaskState::AuthRequired),
        "input" => Ok(TaskState::InputRequired),
        _ => Err(Failure::usage(format!(
            "--through {word} must be auth or input"
        ))),
    }
}

fn code(state: TaskState) -> u8 {
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
