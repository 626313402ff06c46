//! Output while a task is followed: every event if `live`, else a note per change of state.

use attache::model::{StreamResponse, Task, TaskState};

use crate::error::CliResult;
use crate::output::{FRAME_TIME, HistoryMode, Output};
use crate::session::Session;
use crate::task_follower::TaskFollower;

/// Follows a task until it ends or is interrupted, and prints its progress.
pub(crate) async fn follow_until_settled(
    follow: &mut TaskFollower<'_, '_>,
    session: &Session<'_>,
    live: bool,
    out: &mut Output,
) -> CliResult {
    let mut state = None;
    while let Some(event) = next_event(follow, out).await? {
        if let Some(task) = follow.task() {
            out.set_resume_command(session.resume.wait_command(task.id.as_str()));
        }
        if live {
            out.print_event(&event)?;
        } else {
            report_change(&event, &mut state, follow.task(), out)?;
        }
    }
    if let Some(task) = follow.task() {
        report_end(task, session, live, out)?;
    }
    Ok(())
}

/// Waits for the next event. Meanwhile the status line is redrawn, if there is one.
async fn next_event(
    follow: &mut TaskFollower<'_, '_>,
    out: &mut Output,
) -> CliResult<Option<StreamResponse>> {
    let mut next = std::pin::pin!(follow.next());
    let mut frames = tokio::time::interval(FRAME_TIME);
    loop {
        tokio::select! {
            event = &mut next => return event,
            _ = frames.tick(), if out.has_status_line() => out.draw_status_line(),
        }
    }
}

/// Prints the ids when they are first known, and each new state with its message.
fn report_change(
    event: &StreamResponse,
    known: &mut Option<TaskState>,
    task: Option<&Task>,
    out: &mut Output,
) -> CliResult {
    let status = match event {
        StreamResponse::Task(task) => &task.status,
        StreamResponse::StatusUpdate(update) => &update.status,
        StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => return Ok(()),
    };
    if let Some(task) = task {
        out.announce(task.id.as_str(), task.context_id.as_str())?;
    }
    let settled = status.state.is_terminal() || status.state.is_interrupted();
    let message = status
        .message
        .as_ref()
        .map(|message| message.text())
        .filter(|text| !text.is_empty());
    if !settled && (known.replace(status.state) != Some(status.state) || message.is_some()) {
        let message = message.map(|text| format!(": {text}")).unwrap_or_default();
        out.note(&format!("{}{message}", status.state));
    }
    Ok(())
}

/// Prints an outcome other than completed, which the exit code does not show, and the next command.
fn report_end(task: &Task, session: &Session<'_>, live: bool, out: &mut Output) -> CliResult {
    let resume = session.resume.for_task(task);
    if live && out.prints_answer_only() {
        out.finish_task(task, HistoryMode::Hidden, Some(&resume))?;
    } else {
        warn_unless_completed(task, out);
    }
    if let Some(command) = session
        .resume
        .wait_through_command(task.status.state, task.id.as_str())
    {
        out.note(&format!("after the authorization: {command}"));
    }
    if live {
        out.note_missing_content(task);
        if out.is_json() {
            out.note_resume_command(Some(&resume));
        } else if !out.prints_answer_only() {
            out.print_line(&format!("Resume: {}", crate::output::line(&resume)))?;
        }
    }
    Ok(())
}

/// Warns of a final or interrupted state other than completed. Output for people has the state next to the answer.
pub(crate) fn warn_unless_completed(task: &Task, out: &mut Output) {
    if out.prints_answer_only() {
        return;
    }
    let state = task.status.state;
    if (state.is_terminal() || state.is_interrupted()) && state != TaskState::Completed {
        out.warn(&format!("the task is {state}"));
    }
}
