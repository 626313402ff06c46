//! What a command says to whoever runs it: for the log.

use attache::model::TaskId;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::pipe_reader::PipeReader;

/// How much of stderr is logged for one turn; the rest is thrown away.
const MAX_LOGGED: usize = 64 * 1024;

/// How much of its end is part of the reason for a failure.
const MAX_TAIL: usize = 2 * 1024;

const BUFFER_BYTES: usize = 4 * 1024;

/// What a command says to whoever runs it.
pub(super) struct StderrLog<'a> {
    task: &'a TaskId,
    logged: usize,
    tail: Vec<u8>,
}

impl<'a> StderrLog<'a> {
    pub(super) fn new(task: &'a TaskId) -> Self {
        Self {
            task,
            logged: 0,
            tail: Vec::new(),
        }
    }

    /// Takes all that comes, so that the command never waits for us.
    pub(super) async fn read_all(
        &mut self,
        pipe: impl AsyncRead + Unpin,
        ended: &CancellationToken,
    ) {
        let (mut pipe, mut buffer) = (PipeReader::new(pipe, ended), vec![0; BUFFER_BYTES]);
        while let Some(bytes) = pipe.read(&mut buffer).await {
            self.log(bytes);
            self.tail.extend_from_slice(bytes);
            self.tail.drain(..self.tail.len().saturating_sub(MAX_TAIL));
        }
    }

    fn log(&mut self, bytes: &[u8]) {
        if self.logged < MAX_LOGGED {
            let text = String::from_utf8_lossy(bytes);
            tracing::info!(task = %self.task, text = escape_control_chars(text.trim_end()), "command wrote to stderr");
        }
        self.logged += bytes.len();
    }

    /// The end of it.
    pub(super) fn tail_text(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim().to_owned()
    }
}

/// What would move the cursor of whoever reads the log is escaped, and nothing else: the log has its own quotes.
pub(super) fn escape_control_chars(text: &str) -> String {
    text.chars().fold(
        String::with_capacity(text.len()),
        |mut escape_control_chars, c| {
            match c.is_control() {
                true => escape_control_chars.extend(c.escape_default()),
                false => escape_control_chars.push(c),
            }
            escape_control_chars
        },
    )
}
