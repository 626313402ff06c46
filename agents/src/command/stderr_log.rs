//! Log of a program's stderr.

use attache::model::TaskId;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::pipe_reader::PipeReader;

/// Maximum number of bytes of stderr that are logged for one turn; the rest is discarded.
const MAX_LOGGED: usize = 64 * 1024;

/// Number of bytes at the end of stderr that are kept for the reason of a failure.
const MAX_TAIL: usize = 2 * 1024;

const BUFFER_BYTES: usize = 4 * 1024;

/// Reader that logs stderr and keeps its end.
pub(super) struct StderrLog<'a> {
    task: Option<&'a TaskId>,
    logged: usize,
    tail: Vec<u8>,
}

impl<'a> StderrLog<'a> {
    pub(super) fn new(task: Option<&'a TaskId>) -> Self {
        Self {
            task,
            logged: 0,
            tail: Vec::new(),
        }
    }

    /// Reads stderr to its end, even beyond the log limit, so that the program never blocks on a full pipe.
    pub(super) async fn read_all(
        &mut self,
        pipe: impl AsyncRead + Unpin,
        exited: &CancellationToken,
    ) {
        let mut pipe = PipeReader::new(pipe, exited);
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(bytes) = pipe.read(&mut buffer).await {
            self.log(bytes);
            self.tail.extend_from_slice(bytes);
            self.tail.drain(..self.tail.len().saturating_sub(MAX_TAIL));
        }
    }

    fn log(&mut self, bytes: &[u8]) {
        if self.logged < MAX_LOGGED {
            let text = String::from_utf8_lossy(bytes);
            let text = escape_control_chars(text.trim_end());
            tracing::info!(
                task = self.task.map(tracing::field::display),
                text,
                "command wrote to stderr"
            );
        }
        self.logged += bytes.len();
    }

    /// Returns the last 2 KiB of stderr, trimmed.
    pub(super) fn tail_text(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim().to_owned()
    }
}

/// Escapes control characters, which could move the cursor of a terminal that shows the log (S55).
pub(crate) fn escape_control_chars(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}
