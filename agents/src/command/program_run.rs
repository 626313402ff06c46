//! One run of a program: input on stdin, output from stdout.

use std::fmt;
use std::io;
use std::process::ExitStatus;

use attache::model::{CallerKey, TaskId};
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::pipe_reader::PipeReader;
use super::process::{self, ProcessEnd};
use super::stderr_log::StderrLog;
use super::{CommandAgent, write_stdin};

const BUFFER_BYTES: usize = 16 * 1024;

/// Input of one run.
pub(crate) struct ProgramRun<'a> {
    /// Caller whose share of the processes the run uses.
    pub(crate) caller: CallerKey,
    /// Task in the log of stderr.
    pub(crate) task: Option<&'a TaskId>,
    pub(crate) args: &'a [String],
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Content of stdin.
    pub(crate) input: Vec<u8>,
}

/// Failure of a run.
#[derive(Debug)]
pub(crate) enum ProgramError {
    /// The program cannot be started, or its end is unknown.
    System(io::Error),
    /// The program ended with an exit code other than 0, or by a signal.
    Failed {
        status: ExitStatus,
        /// End of stderr.
        stderr: String,
        output: Vec<u8>,
    },
    TimedOut,
    OutputTooLarge {
        max_bytes: usize,
    },
}

impl ProgramError {
    /// Returns the reason, without output of the program.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::System(error) => format!("the command cannot be run: {error}"),
            Self::Failed { status, .. } => process::describe_status(*status),
            Self::TimedOut => "the command took too long".to_owned(),
            Self::OutputTooLarge { max_bytes } => {
                format!("the output is larger than {max_bytes} bytes")
            }
        }
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())
    }
}

impl std::error::Error for ProgramError {}

impl CommandAgent {
    /// Runs the program once, and returns its stdout. Dropping the future kills the program.
    ///
    /// # Errors
    /// The program cannot be started, fails, takes too long or writes too much.
    pub(crate) async fn run_program(&self, run: ProgramRun<'_>) -> Result<Vec<u8>, ProgramError> {
        let _permit = self.permits.acquire(run.caller).await;
        let started = self.start(run.args, run.variables);
        let (mut process, pipes) = started.map_err(ProgramError::System)?;
        let exited = CancellationToken::new();
        let kill = CancellationToken::new();
        let mut stderr = StderrLog::new(run.task);
        let wait = async {
            // A cancel drops this future, and with it the process.
            let never = std::future::pending();
            let end = process.wait(&self.settings, never, kill.cancelled()).await;
            exited.cancel();
            end
        };
        let max_bytes = self.settings.max_output;
        let (end, output, (), ()) = tokio::join!(
            wait,
            read_stdout(pipes.stdout, max_bytes, &exited, &kill),
            write_stdin(pipes.stdin, &run.input, &exited),
            stderr.read_all(pipes.stderr, &exited)
        );
        let output = output.ok_or(ProgramError::OutputTooLarge { max_bytes })?;
        match end.map_err(ProgramError::System)? {
            ProcessEnd::Exited(status) if status.success() => Ok(output),
            ProcessEnd::Exited(status) => Err(ProgramError::Failed {
                status,
                stderr: stderr.tail_text(),
                output,
            }),
            ProcessEnd::TimedOut => Err(ProgramError::TimedOut),
        }
    }
}

/// Reads stdout to its end. Returns `None` and kills the program if it is larger than `max_bytes`.
async fn read_stdout(
    pipe: impl AsyncRead + Unpin,
    max_bytes: usize,
    exited: &CancellationToken,
    kill: &CancellationToken,
) -> Option<Vec<u8>> {
    let mut pipe = PipeReader::new(pipe, exited);
    let mut output = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Some(bytes) = pipe.read(&mut buffer).await {
        output.extend_from_slice(bytes);
        if output.len() > max_bytes {
            kill.cancel();
            return None;
        }
    }
    Some(output)
}
