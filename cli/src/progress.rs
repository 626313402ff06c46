//! What is said while a task is followed: events if they were asked for, else a line when something changes.

use attache::model::{StreamResponse, Task, TaskState};

use crate::error::CliResult;
use crate::output::Output;
use crate::session::Session;
use crate::task_follower::TaskFollower;

/// Follows to the end and says what was asked for, each event if `live`; gives the last event.
pub(crate) async fn follow_until_settled(
    follow: &mut TaskFollower<'_, '_>,
    session: &Session<'_>,
    live: bool,
    out: &mut Output,
) -> CliResult<Option<StreamResponse>> {
    let (mut last, mut state) = (None, None);
    while let Some(event) = follow.next().await? {
        if let Some(task) = follow.task() {
            out.set_resume_command(session.resume.wait_command(task.id.as_str()));
        }
        match live {
            true => out.print_event(&event)?,
            false => report_change(&event, &mut state, follow.task(), out)?,
        }
        last = Some(event);
    }
    if let Some(task) = follow
        .task()
        .filter(|_| !matches!(last, Some(StreamResponse::Message(_))))
    {
        report_end(task, session, live, out)?;
    }
    Ok(last)
}

/// The ids as soon as they are known, and each new state with what the agent says about it.
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
    let said = status
        .message
        .as_ref()
        .map(|message| message.text())
        .filter(|text| !text.is_empty());
    if !settled && (known.replace(status.state) != Some(status.state) || said.is_some()) {
        let said = said.map(|text| format!(": {text}")).unwrap_or_default();
        out.note(&format!("{}{said}", status.state));
    }
    Ok(())
}

/// The outcome is no matter of the exit code, so it is named; and how to go on.
fn report_end(task: &Task, session: &Session<'_>, live: bool, out: &mut Output) -> CliResult {
    warn_unless_completed(task, out);
    if let Some(command) = session
        .resume
        .wait_through_command(task.status.state, task.id.as_str())
    {
        out.note(&format!("once that is done elsewhere: {command}"));
    }
    if live {
        let resume = session.resume.for_task(task);
        match out.is_json() {
            true => out.note_resume_command(Some(&resume)),
            false => out.print_line(&format!("Resume: {}", crate::output::line(&resume)))?,
        }
    }
    Ok(())
}

/// A warning for every outcome but the good one.
pub(crate) fn warn_unless_completed(task: &Task, out: &mut Output) {
    let state = task.status.state;
    if (state.is_terminal() || state.is_interrupted()) && state != TaskState::Completed {
        out.warn(&format!("the task is {state}"));
    }
}
