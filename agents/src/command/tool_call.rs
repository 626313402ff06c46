//! A command that is called like a function: arguments in, what it writes out.

use attache::Turn;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::pipe_reader::PipeReader;
use super::process::{self, Process, ProcessEnd};
use super::process_group::ProcessPipes;
use super::stderr_log::StderrLog;
use super::{CommandAgent, write_stdin};

const BUFFER_BYTES: usize = 16 * 1024;

impl CommandAgent {
    /// Runs it with this as its stdin; gives all of its stdout, or why there is none. Dropped, it is killed.
    pub(crate) async fn call_as_tool(&self, turn: &Turn, input: String) -> Result<String, String> {
        let args = self
            .command_line
            .args(&input)
            .map_err(|unfit| unfit.0.to_owned())?;
        let unavailable = || "the command cannot be run".to_owned();
        let _place = self.processes.acquire().await.map_err(|_| unavailable())?;
        let started = Process::start(self, &args, turn);
        let (
            mut process,
            ProcessPipes {
                stdin,
                stdout,
                stderr,
            },
        ) = started.map_err(|error| {
            tracing::warn!(task = %turn.task_id(), %error, "command not started");
            unavailable()
        })?;
        let (ended, kill) = (CancellationToken::new(), CancellationToken::new());
        let mut stderr_log = StderrLog::new(turn.task_id());
        let end = async {
            // A cancel drops the call, and so kills the command.
            let how = process
                .end(&self.settings, std::future::pending(), kill.cancelled())
                .await;
            ended.cancel();
            how
        };
        let read_stdout = read_stdout(stdout, self.settings.max_output, &ended, &kill);
        let (how, output, (), ()) = tokio::join!(
            end,
            read_stdout,
            write_stdin(stdin, input, &ended),
            stderr_log.read_all(stderr, &ended)
        );
        let output = output.ok_or_else(|| {
            format!(
                "the output is larger than {} bytes",
                self.settings.max_output
            )
        })?;
        match how.map_err(|_| unavailable())? {
            ProcessEnd::Status(status) if status.success() => Ok(output),
            ProcessEnd::Status(status) => Err([
                process::describe_status(status),
                stderr_log.tail_text(),
                output,
            ]
            .join("\n")),
            ProcessEnd::TimedOut => Err("the command took too long".to_owned()),
        }
    }
}

/// All that comes, if it is not too much.
async fn read_stdout(
    pipe: impl AsyncRead + Unpin,
    most: usize,
    ended: &CancellationToken,
    kill: &CancellationToken,
) -> Option<String> {
    let (mut pipe, mut all, mut buffer) = (
        PipeReader::new(pipe, ended),
        Vec::new(),
        vec![0; BUFFER_BYTES],
    );
    while let Some(bytes) = pipe.read(&mut buffer).await {
        all.extend_from_slice(bytes);
        if all.len() > most {
            kill.cancel();
            return None;
        }
    }
    Some(String::from_utf8_lossy(&all).into_owned())
}
