//! A command that is called like a function: arguments in, what it writes out.

use attache::Turn;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::group::Pipes;
use super::pipe::Pipe;
use super::process::{self, Ended, Process};
use super::stderr::Stderr;
use super::{Command, feed};

const BUFFER: usize = 16 * 1024;

impl Command {
    /// Runs it with this as its stdin; gives all of its stdout, or why there is none. Dropped, it is killed.
    pub(crate) async fn call(&self, turn: &Turn, input: String) -> Result<String, String> {
        let args = self.line.args(&input).map_err(|unfit| unfit.0.to_owned())?;
        let lost = || "the command cannot be run".to_owned();
        let _place = self.processes.acquire().await.map_err(|_| lost())?;
        let started = Process::start(self, &args, turn);
        let (
            mut process,
            Pipes {
                stdin,
                stdout,
                stderr,
            },
        ) = started.map_err(|error| {
            tracing::warn!(task = %turn.task_id(), %error, "command not started");
            lost()
        })?;
        let (ended, enough) = (CancellationToken::new(), CancellationToken::new());
        let mut complaints = Stderr::new(turn.task_id());
        let end = async {
            // A cancel drops the call, and so kills the command.
            let how = process
                .end(&self.settings, std::future::pending(), enough.cancelled())
                .await;
            ended.cancel();
            how
        };
        let gather = gather(stdout, self.settings.max_output, &ended, &enough);
        let (how, output, (), ()) = tokio::join!(
            end,
            gather,
            feed(stdin, input, &ended),
            complaints.take(stderr, &ended)
        );
        let output = output.ok_or_else(|| {
            format!(
                "the output is larger than {} bytes",
                self.settings.max_output
            )
        })?;
        match how.map_err(|_| lost())? {
            Ended::Status(status) if status.success() => Ok(output),
            Ended::Status(status) => {
                Err([process::words(status), complaints.end(), output].join("\n"))
            }
            Ended::TooLate => Err("the command took too long".to_owned()),
        }
    }
}

/// All that comes, if it is not too much.
async fn gather(
    pipe: impl AsyncRead + Unpin,
    most: usize,
    ended: &CancellationToken,
    enough: &CancellationToken,
) -> Option<String> {
    let (mut pipe, mut all, mut buffer) = (Pipe::new(pipe, ended), Vec::new(), vec![0; BUFFER]);
    while let Some(bytes) = pipe.read(&mut buffer).await {
        all.extend_from_slice(bytes);
        if all.len() > most {
            enough.cancel();
            return None;
        }
    }
    Some(String::from_utf8_lossy(&all).into_owned())
}
