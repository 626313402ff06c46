//! Taking connections in: as many as there is room for, and what to do when the machine has none left.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long to wait when there are no more file descriptors, at first and at most: some will come free.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// File descriptors that are not for connections: the store, the log, agents and what they open.
const OTHER_FILES: u64 = 64;

/// Held as long as a connection is there.
pub(super) type Place = Option<OwnedSemaphorePermit>;

/// Where connections come in.
pub(super) struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    trouble: Trouble,
}

impl Door {
    /// Takes as many connections at a time as are wanted and the process may have.
    pub(super) fn new(listener: TcpListener, wanted: usize) -> Self {
        let files = max_files();
        let room = room(wanted, files);
        if room < wanted {
            tracing::info!(
                max_connections = room,
                wanted,
                files,
                "fewer connections, because so few files may be open"
            );
        }
        let places = Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS)));
        Self {
            listener,
            places,
            trouble: Trouble::default(),
        }
    }

    /// The next connection, once there is room for it.
    pub(super) async fn next(&mut self) -> (TcpStream, SocketAddr, Place) {
        loop {
            let place = self.places.clone().acquire_owned().await.ok();
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if self.trouble.is_over() {
                        tracing::info!("connections are accepted again");
                    }
                    return (stream, peer, place);
                }
                // A caller who left before being served is nobody's trouble.
                Err(error) if has_left(&error) => {}
                Err(error) => {
                    let (pause, is_new) = self.trouble.again();
                    if is_new {
                        tracing::error!(%error, "cannot accept connections");
                    }
                    sleep(pause).await;
                }
            }
        }
    }
}

/// That connections cannot be accepted: told once, tried less and less often.
#[derive(Default)]
struct Trouble(Option<Duration>);

impl Trouble {
    /// How long to wait now, and whether this is news.
    fn again(&mut self) -> (Duration, bool) {
        let (first, most) = PAUSES;
        let pause = self.0.map_or(first, |before| (before * 2).min(most));
        (pause, self.0.replace(pause).is_none())
    }

    /// Forgets it; says whether there was any.
    fn is_over(&mut self) -> bool {
        self.0.take().is_some()
    }
}

fn has_left(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// How many connections there may be where so many files may be open: a part of these is for others.
fn room(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files else { return wanted };
    let others = OTHER_FILES.max(files / 8).min(files / 2);
    wanted
        .min(usize::try_from(files - others).unwrap_or(usize::MAX))
        .max(1)
}

/// How many files this process may have open, if somebody has said so.
#[cfg(unix)]
fn max_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(not(unix))]
fn max_files() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_fewer_connections_than_files() {
        for (wanted, files, room) in [
            (50_000, None, 50_000),
            (50_000, Some(1_024), 896),
            (50_000, Some(256), 192),
            (50_000, Some(1 << 20), 50_000),
            (100, Some(1_024), 100),
            (100, Some(20), 10),
            (100, Some(1), 1),
            (0, Some(0), 1),
        ] {
            assert_eq!(super::room(wanted, files), room, "{files:?}");
        }
    }

    #[test]
    fn trouble_is_news_once_and_tried_less_and_less_often() {
        let mut trouble = Trouble::default();
        assert!(!trouble.is_over());
        let told: Vec<_> = (0..7).map(|_| trouble.again()).collect();
        assert_eq!(
            told.iter().map(|(_, is_new)| *is_new).collect::<Vec<_>>(),
            [&[true][..], &[false; 6]].concat()
        );
        assert!(told.is_sorted_by_key(|(pause, _)| *pause));
        assert_eq!((told[0].0, told[6].0), PAUSES);
        assert!(trouble.is_over());
        assert!(trouble.again().1, "news again");
    }
}
