//! What comes out of a command, until it has ended and said its last words.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a pipe is read after the command has ended: somebody who left its group may hold it open, and write on.
const READ_AFTER_EXIT: Duration = Duration::from_millis(500);
/// What a command can have left in a pipe when it ended. It is read however long that takes.
const PIPE_CAPACITY: usize = 64 * 1024;

/// The end of a pipe that a command writes to.
pub(super) struct PipeReader<'a, P> {
    pipe: P,
    exited: &'a CancellationToken,
    until: Option<Instant>,
    /// How much came after the end.
    bytes_after_exit: usize,
}

impl<'a, P: AsyncRead + Unpin> PipeReader<'a, P> {
    pub(super) fn new(pipe: P, exited: &'a CancellationToken) -> Self {
        Self {
            pipe,
            exited,
            until: None,
            bytes_after_exit: 0,
        }
    }

    /// What comes next; `None` at its end, or when nothing more of the command itself is to be expected.
    pub(super) async fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let Self {
            pipe,
            exited,
            until,
            bytes_after_exit,
        } = self;
        let over = async {
            exited.cancelled().await;
            sleep_until(*until.get_or_insert_with(|| Instant::now() + READ_AFTER_EXIT)).await;
        };
        let read = tokio::select! {
            biased;
            read = pipe.read(buffer) => read.unwrap_or(0),
            () = over => 0,
        };
        if exited.is_cancelled() {
            // Whoever writes without a pause is never waited for.
            let until = *until.get_or_insert_with(|| Instant::now() + READ_AFTER_EXIT);
            *bytes_after_exit += read;
            if *bytes_after_exit > PIPE_CAPACITY && Instant::now() >= until {
                return None;
            }
        }
        (read > 0).then(|| &buffer[..read])
    }
}
