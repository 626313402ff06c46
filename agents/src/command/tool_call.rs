//! Commands as tools of a language model: arguments in, output out.

use attache::Turn;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::pipe_reader::PipeReader;
use super::process::{self, Process, ProcessEnd};
use super::stderr_log::StderrLog;
use super::{CommandAgent, write_stdin};

const BUFFER_BYTES: usize = 16 * 1024;

impl CommandAgent {
    /// Runs the program with `input` on stdin, and returns its stdout. Dropping the future kills the program.
    ///
    /// # Errors
    /// The program cannot be started, fails, takes too long or writes too much. The message is written for a model.
    pub(crate) async fn call_as_tool(&self, turn: &Turn, input: String) -> Result<String, String> {
        let unavailable = || "the command cannot be run".to_owned();
        let args = self.command_line.args(&input);
        let args = args.map_err(|invalid| invalid.0.to_owned())?;
        let _permit = self.permits.acquire(turn.call().caller_key()).await;
        let started = Process::start(self, &args, turn);
        let (mut process, pipes) = started.map_err(|error| {
            tracing::warn!(task = %turn.task_id(), %error, "command not started");
            unavailable()
        })?;
        let exited = CancellationToken::new();
        let kill = CancellationToken::new();
        let mut stderr = StderrLog::new(turn.task_id());
        let wait = async {
            // A cancel drops this future, and with it the process.
            let never = std::future::pending();
            let end = process.wait(&self.settings, never, kill.cancelled()).await;
            exited.cancel();
            end
        };
        let max_output = self.settings.max_output;
        let (end, output, (), ()) = tokio::join!(
            wait,
            read_stdout(pipes.stdout, max_output, &exited, &kill),
            write_stdin(pipes.stdin, input, &exited),
            stderr.read_all(pipes.stderr, &exited)
        );
        let output =
            output.ok_or_else(|| format!("the output is larger than {max_output} bytes"))?;
        match end.map_err(|_| unavailable())? {
            ProcessEnd::Exited(status) if status.success() => Ok(output),
            ProcessEnd::Exited(status) => {
                Err([process::describe_status(status), stderr.tail_text(), output].join("\n"))
            }
            ProcessEnd::TimedOut => Err("the command took too long".to_owned()),
        }
    }
}

/// Reads stdout to its end. Returns `None` and kills the program if it is larger than `max_bytes`.
async fn read_stdout(
    pipe: impl AsyncRead + Unpin,
    max_bytes: usize,
    exited: &CancellationToken,
    kill: &CancellationToken,
) -> Option<String> {
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
    Some(String::from_utf8_lossy(&output).into_owned())
}
