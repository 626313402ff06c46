//! Plain messages as answers: the command runs without a task, and writes the JSON line `reply`.

use attache::model::{Call, Message};
use serde::Deserialize;
use serde_json::json;

use super::environment::message_variables;
use super::program_run::ProgramRun;
use super::{CommandAgent, CommandInput};

/// Line of the output. Other members belong to a task.
#[derive(Deserialize)]
struct ReplyLine {
    reply: Option<String>,
}

/// Runs the command for a message that names no task. Returns `None` if it writes no `reply` or fails: the message then
/// opens a task, which runs the command again.
pub(super) async fn direct_reply(
    command: &CommandAgent,
    message: &Message,
    call: &Call,
) -> Option<Message> {
    let text = message.text();
    let args = command.command_line.args(&text).ok()?;
    let run = ProgramRun {
        caller: call.caller_key(),
        task: None,
        args: &args,
        variables: message_variables(message, call).collect(),
        input: stdin_text(command, message, text).into_bytes(),
    };
    let output = command.run_program(run).await.ok()?;
    let lines = output.split(|byte| *byte == b'\n');
    let mut lines = lines.map(serde_json::from_slice::<ReplyLine>);
    let reply = lines.find_map(|line| line.ok()?.reply)?;
    Some(Message::agent(reply))
}

fn stdin_text(command: &CommandAgent, message: &Message, text: String) -> String {
    match command.input() {
        CommandInput::Text => text,
        CommandInput::Json => {
            // The context id of a caller is not disclosed to commands.
            let mut message = message.clone().without_internal_metadata();
            message.context_id = None;
            format!(
                "{}\n",
                json!({"text": text, "message": message, "task": null})
            )
        }
        CommandInput::None => String::new(),
    }
}
