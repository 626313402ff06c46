//! TCP listener with a connection limit and a backoff for failing accepts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// First delay after a failed accept, usually for lack of file descriptors. It doubles up to
/// [`MAX_ACCEPT_BACKOFF`].
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);
/// File descriptors that connections may not use: the store, the log, and files of agents.
const RESERVED_FILES: u64 = 64;

/// Permit that a connection holds until it is closed. `None` for connections without a limit.
pub(super) type ConnectionPermit = Option<OwnedSemaphorePermit>;

/// Listener that accepts at most a fixed number of concurrent connections.
pub(super) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    backoff: AcceptBackoff,
}

/// Connection that a [`LimitedListener`] has accepted.
pub(super) struct AcceptedConnection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) permit: ConnectionPermit,
}

impl LimitedListener {
    /// Limits `listener` to `max_connections`, or to fewer if the process may not open that many
    /// files.
    pub(super) fn new(listener: TcpListener, max_connections: usize) -> Self {
        let files = open_file_limit();
        let limit = connection_limit(max_connections, files);
        if limit < max_connections {
            tracing::info!(
                max_connections = limit,
                configured = max_connections,
                open_files = files,
                "connection limit lowered by the limit on open files"
            );
        }
        let permits = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        Self {
            listener,
            permits,
            backoff: AcceptBackoff::default(),
        }
    }

    /// Waits for a permit and then for a connection. Retries with backoff if accepting fails.
    pub(super) async fn accept(&mut self) -> AcceptedConnection {
        loop {
            let permit = self.permits.clone().acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if self.backoff.reset() {
                        tracing::info!("accepting connections again");
                    }
                    return AcceptedConnection {
                        stream,
                        peer,
                        permit,
                    };
                }
                Err(error) if is_client_abort(&error) => {}
                Err(error) => {
                    if self.backoff.is_reset() {
                        tracing::error!(%error, "cannot accept connections");
                    }
                    sleep(self.backoff.next_delay()).await;
                }
            }
        }
    }
}

/// Exponential backoff for failing accepts. Holds the last delay, `None` after a success.
#[derive(Default)]
struct AcceptBackoff(Option<Duration>);

impl AcceptBackoff {
    /// Whether the next failure is the first in a row, which is the one to log.
    fn is_reset(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the delay before the next attempt and doubles it, up to the maximum.
    fn next_delay(&mut self) -> Duration {
        let delay = self.0.map_or(MIN_ACCEPT_BACKOFF, |last| {
            (last * 2).min(MAX_ACCEPT_BACKOFF)
        });
        self.0 = Some(delay);
        delay
    }

    /// Records a success. Returns whether failures preceded it.
    fn reset(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Whether the client closed the connection before it was accepted.
fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Returns the connection limit for a process that may open `files` files. A share of them is
/// reserved.
fn connection_limit(max_connections: usize, files: Option<u64>) -> usize {
    let Some(files) = files else {
        return max_connections;
    };
    let reserved = RESERVED_FILES.max(files / 8).min(files / 2);
    max_connections
        .min(usize::try_from(files - reserved).unwrap_or(usize::MAX))
        .max(1)
}

/// Returns the soft limit on open files (`RLIMIT_NOFILE`), if there is one.
#[cfg(unix)]
fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn open_file_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limit_leaves_files_for_others() {
        for (max_connections, files, expected) in [
            (50_000, None, 50_000),
            (50_000, Some(1_024), 896),
            (50_000, Some(256), 192),
            (50_000, Some(1 << 20), 50_000),
            (100, Some(1_024), 100),
            (100, Some(20), 10),
            (100, Some(1), 1),
            (0, Some(0), 1),
        ] {
            assert_eq!(
                connection_limit(max_connections, files),
                expected,
                "{files:?}"
            );
        }
    }

    #[test]
    fn accept_backoff_doubles_and_reports_once() {
        let mut backoff = AcceptBackoff::default();
        assert!(!backoff.reset());
        assert!(backoff.is_reset());
        let mut delays = Vec::new();
        for _ in 0..7 {
            delays.push(backoff.next_delay());
            assert!(!backoff.is_reset(), "reported once");
        }
        assert!(delays.is_sorted());
        assert_eq!(delays[0], MIN_ACCEPT_BACKOFF);
        assert_eq!(delays[6], MAX_ACCEPT_BACKOFF);
        assert!(backoff.reset());
        assert!(backoff.is_reset(), "the next failure is reported again");
    }
}
