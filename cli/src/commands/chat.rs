//! `attache chat`: one turn after another, a line each. The context goes along always, the task while it asks.

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
        return Err(CliError::usage("chat is for people, and prints text")
            .hint("for a program: attache send -o json, with --context-id and --task-id"));
    }
    let keyboard = std::io::stdin().is_terminal();
    if keyboard && !std::io::stdout().is_terminal() {
        return Err(
            CliError::usage("there is a keyboard, but nobody to read the answers")
                .hint("pipe the turns in as well, a line each"),
        );
    }
    let session = Session::open(settings, out).await?;
    let (mut context, mut task) = (settings.context_id.clone(), settings.task_id.clone());
    if keyboard {
        out.note("a line is a turn; end with Ctrl-D");
    }
    let mut lines = lines();
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

/// The lines of stdin. They are read by a thread that nobody waits for: an interrupt ends the program at once.
fn lines() -> Receiver<std::io::Result<String>> {
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
