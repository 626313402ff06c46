//! Reader for the output pipes of a program.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Time that a pipe is read after the program has exited. A process that left the group may keep the pipe open.
const READ_AFTER_EXIT: Duration = Duration::from_millis(500);
/// Capacity of a pipe in bytes: the program may have left this much unread. It is read even after the time above.
const PIPE_CAPACITY: usize = 64 * 1024;

/// Reader of a pipe that stops shortly after the program has exited.
pub(crate) struct PipeReader<'a, P> {
    pipe: P,
    exited: &'a CancellationToken,
    /// Time at which reading stops; set once the program has exited.
    deadline: Option<Instant>,
    bytes_after_exit: usize,
}

impl<'a, P: AsyncRead + Unpin> PipeReader<'a, P> {
    pub(crate) fn new(pipe: P, exited: &'a CancellationToken) -> Self {
        Self {
            pipe,
            exited,
            deadline: None,
            bytes_after_exit: 0,
        }
    }

    /// Reads the next bytes. Returns `None` at the end of the pipe or of the time after the exit.
    pub(crate) async fn read<'b>(&mut self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let Self {
            pipe,
            exited,
            deadline,
            bytes_after_exit,
        } = self;
        let expired = async {
            exited.cancelled().await;
            sleep_until(*deadline.get_or_insert_with(|| Instant::now() + READ_AFTER_EXIT)).await;
        };
        let read = tokio::select! {
            biased;
            read = pipe.read(buffer) => read.unwrap_or(0),
            () = expired => 0,
        };
        if exited.is_cancelled() {
            // Checked here too: a process that writes without a pause never lets `expired` win.
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + READ_AFTER_EXIT);
            *bytes_after_exit += read;
            if *bytes_after_exit > PIPE_CAPACITY && Instant::now() >= deadline {
                return None;
            }
        }
        (read > 0).then(|| &buffer[..read])
    }
}
