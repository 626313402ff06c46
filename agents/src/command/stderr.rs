//! What a command says to whoever runs it: for the log.

use attache::model::TaskId;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::pipe::Pipe;

/// How much of stderr is logged for one turn; the rest is thrown away.
const MAX_LOGGED: usize = 64 * 1024;

/// How much of its end is part of the reason for a failure.
const MAX_TAIL: usize = 2 * 1024;

const BUFFER: usize = 4 * 1024;

/// What a command says to whoever runs it.
pub(super) struct Stderr<'a> {
    task: &'a TaskId,
    logged: usize,
    tail: Vec<u8>,
}

impl<'a> Stderr<'a> {
    pub(super) fn new(task: &'a TaskId) -> Self {
        Self {
            task,
            logged: 0,
            tail: Vec::new(),
        }
    }

    /// Takes all that comes, so that the command never waits for us.
    pub(super) async fn take(&mut self, pipe: impl AsyncRead + Unpin, ended: &CancellationToken) {
        let (mut pipe, mut buffer) = (Pipe::new(pipe, ended), vec![0; BUFFER]);
        while let Some(bytes) = pipe.read(&mut buffer).await {
            self.log(bytes);
            self.tail.extend_from_slice(bytes);
            self.tail.drain(..self.tail.len().saturating_sub(MAX_TAIL));
        }
    }

    fn log(&mut self, bytes: &[u8]) {
        if self.logged < MAX_LOGGED {
            let text = String::from_utf8_lossy(bytes);
            tracing::info!(task = %self.task, text = plain(text.trim_end()), "command wrote to stderr");
        }
        self.logged += bytes.len();
    }

    /// The end of it.
    pub(super) fn end(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim().to_owned()
    }
}

/// What would move the cursor of whoever reads the log is escaped, and nothing else: the log has its own quotes.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut plain, c| {
            match c.is_control() {
                true => plain.extend(c.escape_default()),
                false => plain.push(c),
            }
            plain
        })
}
