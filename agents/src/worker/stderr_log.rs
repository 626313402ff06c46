//! Log of the stderr of a worker.

use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::command::{PipeReader, escape_control_chars};

/// Maximum number of bytes that are logged in one period; the rest is discarded.
const MAX_LOGGED: usize = 64 * 1024;
const PERIOD: Duration = Duration::from_secs(60);
const BUFFER_BYTES: usize = 4 * 1024;

/// Logs stderr to its end, and returns its last line. Reads beyond the limit too, so that the process never blocks on a full pipe.
pub(super) async fn log_stderr(
    pipe: impl AsyncRead + Unpin,
    exited: &CancellationToken,
) -> Option<String> {
    let mut pipe = PipeReader::new(pipe, exited);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut period_start = Instant::now();
    let mut logged = 0;
    let mut last_line = None;
    while let Some(bytes) = pipe.read(&mut buffer).await {
        if period_start.elapsed() >= PERIOD {
            period_start = Instant::now();
            logged = 0;
        }
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        for line in lines {
            let text = escape_control_chars(line);
            if logged < MAX_LOGGED {
                tracing::info!(text, "worker wrote to stderr");
            }
            last_line = Some(text);
        }
        logged += bytes.len();
    }
    last_line
}
