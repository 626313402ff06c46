//! `attache chat`: a conversation. On a terminal it has a line editor ([`repl`]); otherwise each line of stdin is a message.
//! Messages carry the context id always, the task id while the task is interrupted.

mod editor;
mod repl;
mod slash_command;
mod turn;

use std::io::{BufRead, IsTerminal};

use attache::model::{Message, SendMessageResponse};
use tokio::sync::mpsc::{Receiver, channel};

use super::send::send_and_wait;
use crate::args::CommonFlags;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::session::Session;
use crate::settings::Settings;

/// Whether a person sits at a terminal. Then Ctrl-C cancels a turn instead of ending the program.
pub(super) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

pub(crate) async fn run(common: CommonFlags, settings: &Settings, out: &mut Output) -> CliResult {
    if out.is_json() {
        return Err(CliError::usage("chat is interactive and prints text only")
            .hint("programs use attache send -o json, with --context-id and --task-id"));
    }
    if is_interactive() {
        out.use_pretty();
        return repl::run(common, out).await;
    }
    if std::io::stdin().is_terminal() {
        return Err(CliError::usage("stdin is a terminal, but stdout is not")
            .hint("pipe the messages to stdin, one per line"));
    }
    run_piped(settings, out).await
}

/// Sends each line of stdin as a message.
async fn run_piped(settings: &Settings, out: &mut Output) -> CliResult {
    let session = Session::open(settings, out).await?;
    let mut context = settings.context_id.clone();
    let mut task = settings.task_id.clone();
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
