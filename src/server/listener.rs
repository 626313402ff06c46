//! Taking connections in: as many as there is room for, and what to do when the machine has none left.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long to wait when there are no more file descriptors, at first and at most: some will come free.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);
/// File descriptors that are not for connections: the store, the log, agents and what they open.
const RESERVED_FILES: u64 = 64;

/// Held as long as a connection is there.
pub(super) type ConnectionPermit = Option<OwnedSemaphorePermit>;

/// Where connections come in.
pub(super) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    backoff: AcceptBackoff,
}

impl LimitedListener {
    /// Takes as many connections at a time as are wanted and the process may have.
    pub(super) fn new(listener: TcpListener, wanted: usize) -> Self {
        let files = open_file_limit();
        let connection_limit = connection_limit(wanted, files);
        if connection_limit < wanted {
            tracing::info!(
                max_connections = connection_limit,
                wanted,
                files,
                "fewer connections, because so few files may be open"
            );
        }
        let permits = Arc::new(Semaphore::new(connection_limit.min(Semaphore::MAX_PERMITS)));
        Self {
            listener,
            permits,
            backoff: AcceptBackoff::default(),
        }
    }

    /// The next connection, once there is room for it.
    pub(super) async fn accept(&mut self) -> (TcpStream, SocketAddr, ConnectionPermit) {
        loop {
            let permit = self.permits.clone().acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if self.backoff.reset() {
                        tracing::info!("connections are accepted again");
                    }
                    return (stream, peer, permit);
                }
                // A caller who left before being served is nobody's trouble.
                Err(error) if is_client_abort(&error) => {}
                Err(error) => {
                    let (delay, is_first) = self.backoff.next_delay();
                    if is_first {
                        tracing::error!(%error, "cannot accept connections");
                    }
                    sleep(delay).await;
                }
            }
        }
    }
}

/// That connections cannot be accepted: delays once, tried less and less often.
#[derive(Default)]
struct AcceptBackoff(Option<Duration>);

impl AcceptBackoff {
    /// How long to wait now, and whether this is news.
    fn next_delay(&mut self) -> (Duration, bool) {
        let delay = self.0.map_or(MIN_ACCEPT_BACKOFF, |last| {
            (last * 2).min(MAX_ACCEPT_BACKOFF)
        });
        (delay, self.0.replace(delay).is_none())
    }

    /// Forgets it; says whether there was any.
    fn reset(&mut self) -> bool {
        self.0.take().is_some()
    }
}

fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// How many connections there may be where so many files may be open: a part of these is for others.
fn connection_limit(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return wanted };
    let others = RESERVED_FILES.max(files / 8).min(files / 2);
    wanted
        .min(usize::try_from(files - others).unwrap_or(usize::MAX))
        .max(1)
}

/// How many files this process may have open, if somebody has said so.
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
        for (wanted, files, connection_limit) in [
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
                super::connection_limit(wanted, files),
                connection_limit,
                "{files:?}"
            );
        }
    }

    #[test]
    fn accept_backoff_doubles_and_reports_once() {
        let mut backoff = AcceptBackoff::default();
        assert!(!backoff.reset());
        let delays: Vec<_> = (0..7).map(|_| backoff.next_delay()).collect();
        assert_eq!(
            delays
                .iter()
                .map(|(_, is_first)| *is_first)
                .collect::<Vec<_>>(),
            [&[true][..], &[false; 6]].concat()
        );
        assert!(delays.is_sorted_by_key(|(delay, _)| *delay));
        assert_eq!(
            (delays[0].0, delays[6].0),
            (MIN_ACCEPT_BACKOFF, MAX_ACCEPT_BACKOFF)
        );
        assert!(backoff.reset());
        assert!(backoff.next_delay().1, "news again");
    }
}
