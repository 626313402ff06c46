//! Commands as tools of a language model: arguments in, output out.

use attache::Turn;

use super::CommandAgent;
use super::environment::turn_variables;
use super::program_run::{ProgramError, ProgramRun};

impl CommandAgent {
    /// Runs the program with `input` on stdin, and returns its stdout. Dropping the future kills the program.
    ///
    /// # Errors
    /// The program cannot be started, fails, takes too long or writes too much. The message is written for a model.
    pub(crate) async fn call_as_tool(&self, turn: &Turn, input: String) -> Result<String, String> {
        let args = self.command_line.args(&input);
        let args = args.map_err(|invalid| invalid.0.to_owned())?;
        let run = ProgramRun {
            caller: turn.call().caller_key(),
            task: Some(turn.task_id()),
            args: &args,
            variables: turn_variables(turn).collect(),
            input: input.into_bytes(),
        };
        match self.run_program(run).await {
            Ok(output) => Ok(String::from_utf8_lossy(&output).into_owned()),
            Err(ProgramError::System(error)) => {
                tracing::warn!(task = %turn.task_id(), %error, "command not started");
                Err("the command cannot be run".to_owned())
            }
            Err(error) => Err(describe(&error)),
        }
    }
}

/// Describes a failure for a model, with the output of the program.
fn describe(error: &ProgramError) -> String {
    match error {
        ProgramError::Failed { stderr, output, .. } => {
            let output = String::from_utf8_lossy(output);
            [&error.reason(), stderr, &*output].join("\n")
        }
        ProgramError::System(_) | ProgramError::TimedOut | ProgramError::OutputTooLarge { .. } => {
            error.reason()
        }
    }
}
