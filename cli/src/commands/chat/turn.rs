//! One turn of a chat on a terminal: prints the answer as it arrives. Ctrl-C cancels the task.

use attache::ErrorKind;
use attache::model::{CancelTaskRequest, Message, SendMessageResponse, TaskId};

use super::super::send::open_stream;
use crate::error::{CliError, CliResult};
use crate::interrupts::Interrupts;
use crate::output::{FRAME_TIME, HistoryMode, Output};
use crate::session::Session;

/// How a turn ended.
pub(super) enum TurnEnd {
    Answer(SendMessageResponse),
    /// The user left the turn; the task, if it is known, goes on.
    Left(Option<TaskId>),
}

/// Progress of a cancellation by Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cancellation {
    None,
    /// The id of the task is not known yet.
    Wanted,
    Requested,
}

/// Sends a message and prints the answer.
pub(super) async fn run(
    session: &Session<'_>,
    message: Message,
    out: &mut Output,
) -> CliResult<TurnEnd> {
    let mut interrupts = Interrupts::new()?;
    out.reset();
    let opened = tokio::select! {
        opened = open_stream(session, message, out) => opened,
        () = interrupts.interrupted() => {
            out.note("stopped waiting; the message may have arrived");
            return Ok(TurnEnd::Left(None));
        }
    };
    let mut follow = opened?;
    let mut frames = tokio::time::interval(FRAME_TIME);
    let mut cancellation = Cancellation::None;
    loop {
        tokio::select! {
            event = follow.next() => match event? {
                Some(event) => out.print_event(&event)?,
                None => break,
            },
            () = interrupts.interrupted() => match cancellation {
                Cancellation::None => cancellation = Cancellation::Wanted,
                Cancellation::Wanted | Cancellation::Requested => {
                    let id = follow.task().map(|task| task.id.clone());
                    return Ok(leave(session, id, out));
                }
            },
            _ = frames.tick(), if out.has_status_line() => out.draw_status_line(),
        }
        let Some(id) = follow.task().map(|task| task.id.clone()) else {
            continue;
        };
        out.set_resume_command(session.resume.wait_command(id.as_str()));
        if cancellation == Cancellation::Wanted {
            cancellation = Cancellation::Requested;
            tokio::select! {
                canceled = request_cancel(session, &id, out) => canceled,
                () = interrupts.interrupted() => return Ok(leave(session, Some(id), out)),
            }
        }
    }
    match (follow.task(), follow.message()) {
        (Some(task), _) => {
            out.finish_task(task, HistoryMode::Hidden, None)?;
            out.note_missing_content(task);
            Ok(TurnEnd::Answer(SendMessageResponse::Task(task.clone())))
        }
        (None, Some(reply)) => {
            out.finish_reply(&reply, None)?;
            Ok(TurnEnd::Answer(SendMessageResponse::Message(reply)))
        }
        (None, None) => Err(CliError::protocol(
            ErrorKind::InvalidAgentResponse,
            "the stream of the agent was empty",
        )),
    }
}

/// Asks the agent to cancel the task. Its stream then reports the end.
async fn request_cancel(session: &Session<'_>, id: &TaskId, out: &mut Output) {
    out.note("canceling; Ctrl-C again leaves the task running");
    let request = CancelTaskRequest {
        id: id.clone(),
        metadata: session.settings.metadata.clone(),
        ..CancelTaskRequest::default()
    };
    if let Err(error) = session.call(session.client.cancel_task(request)).await {
        out.note(&format!("cannot cancel: {}", error.message));
    }
}

fn leave(session: &Session<'_>, id: Option<TaskId>, out: &mut Output) -> TurnEnd {
    if let Some(id) = &id {
        let command = session.resume.wait_command(id.as_str());
        out.note(&format!("the task goes on: {command}"));
    }
    TurnEnd::Left(id)
}
