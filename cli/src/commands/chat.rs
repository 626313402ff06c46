//! `attache chat`: sends each line of stdin as a message. Messages carry the context id always, the task id while the task
//! is interrupted.

use std::io::{BufRead, IsTerminal};

use attache::model::{Message, SendMessageResponse};
use tokio::sync::mpsc::{Receiver, channel};

use super::send::send_and_wait;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::session::Session;
use crate::settings::Settings;

pub(crate) async fn run(settings: &Settings, out: &mut Output) -> CliResult {
    if out.is_json() {
        return Err(CliError::usage("chat is interactive and prints text only")
            .hint("programs use attache send -o json, with --context-id and --task-id"));
    }
    let is_interactive = std::io::stdin().is_terminal();
    if is_interactive && !std::io::stdout().is_terminal() {
        return Err(CliError::usage("stdin is a terminal, but stdout is not")
            .hint("pipe the messages to stdin, one per line"));
    }
    let session = Session::open(settings, out).await?;
    let mut context = settings.context_id.clone();
    let mut task = settings.task_id.clone();
    if is_interactive {
        out.note("each line is a message; end with Ctrl-D");
    }
    let mut lines = read_lines();
    while let Some(line) = lines.recv().await {
        let line = line.map_err(|error| CliError::usage(format!("stdin: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let mut message = Message::user(line);
        message.context_id = context.as_deref().map(Into::into);
        message.task_id = task.as_deref().map(Into::into);
        out.reset();
        match send_and_wait(&session, message, out).await? {
            SendMessageResponse::Message(reply) => {
                context = reply.context_id.map(|id| id.to_string()).or(context);
                task = None;
            }
            SendMessageResponse::Task(answer) => {
                context = Some(answer.context_id.to_string())
                    .filter(|id| !id.is_empty())
                    .or(context);
                task = answer
                    .status
                    .state
                    .is_interrupted()
                    .then(|| answer.id.to_string());
            }
        }
    }
    Ok(())
}

/// Reads the lines of stdin on a thread that is never joined, so a blocked read does not delay the end of the program.
fn read_lines() -> Receiver<std::io::Result<String>> {
    let (send, receive) = channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if send.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receive
}
