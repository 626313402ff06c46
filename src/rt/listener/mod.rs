//! Listener with connection limits and a backoff for failing accepts, for TCP and Unix sockets.

mod limits;
mod permit;
mod reserve;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use limits::ConnectionLimits;
pub use permit::ConnectionPermit;

use crate::model::ClientAddress;
use permit::ConnectionCounter;

/// First delay after a failed accept, usually for lack of file descriptors. It doubles up to
/// [`MAX_ACCEPT_BACKOFF`].
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Whether an address may hold all connections, instead of its share.
type Exemption = Box<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Listener that limits concurrent connections in total and per client address.
///
/// A connection beyond [`ConnectionLimits`] is accepted into a small reserve. If the reserve is
/// full, its oldest connection is closed, first one of the address with the most connections. Idle
/// connections can therefore not keep new ones from being accepted.
///
/// ```
/// # use attache::{ConnectionLimits, LimitedListener};
/// # async fn example() -> std::io::Result<()> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let mut listener = LimitedListener::new(listener, ConnectionLimits::new(256));
/// let connection = listener.accept().await;
/// println!("{} connected", connection.peer);
/// # Ok(())
/// # }
/// ```
pub struct LimitedListener<L> {
    listener: L,
    counter: Arc<ConnectionCounter>,
    is_exempt: Exemption,
    backoff: AcceptBackoff,
}

/// Connection that a [`LimitedListener`] has accepted.
#[derive(Debug)]
#[non_exhaustive]
pub struct AcceptedConnection<S, P> {
    /// Byte stream.
    pub stream: S,
    /// Address of the client.
    pub peer: P,
    /// Counts the connection until it is dropped.
    pub permit: ConnectionPermit,
}

impl<L> LimitedListener<L> {
    /// Limits `listener`. Fewer connections are accepted if the process may not open enough files;
    /// a warning is logged then.
    ///
    /// Loopback addresses may hold all connections. See [`exempt`](Self::exempt).
    pub fn new(listener: L, limits: ConnectionLimits) -> Self {
        Self {
            listener,
            counter: ConnectionCounter::new(limits.fit_open_files()),
            is_exempt: Box::new(|ip| ip.to_canonical().is_loopback()),
            backoff: AcceptBackoff::default(),
        }
    }

    /// Sets the addresses that may hold all connections, such as those of trusted proxies. They
    /// replace the loopback addresses.
    #[must_use]
    pub fn exempt(mut self, is_exempt: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.is_exempt = Box::new(is_exempt);
        self
    }

    /// Returns the limits that apply.
    pub fn limits(&self) -> &ConnectionLimits {
        self.counter.limits()
    }
}

impl LimitedListener<TcpListener> {
    /// Waits for the next connection. Retries with backoff if accepting fails.
    ///
    /// Cancellation loses no connection.
    pub async fn accept(&mut self) -> AcceptedConnection<TcpStream, SocketAddr> {
        loop {
            let listener = &self.listener;
            let (stream, peer) = self.backoff.retry(|| listener.accept()).await;
            let address = client_address(peer.ip());
            let is_exempt = (self.is_exempt)(peer.ip());
            if let Some(permit) = self.counter.admit(Some(address), is_exempt) {
                return AcceptedConnection {
                    stream,
                    peer,
                    permit,
                };
            }
        }
    }

    /// Returns the listening address.
    ///
    /// # Errors
    /// The operating system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[cfg(unix)]
impl LimitedListener<UnixListener> {
    /// Waits for the next connection. Retries with backoff if accepting fails.
    ///
    /// Cancellation loses no connection. Clients of the socket have no addresses and share the limit
    /// in total.
    pub async fn accept(&mut self) -> AcceptedConnection<UnixStream, ()> {
        loop {
            let listener = &self.listener;
            let (stream, _) = self.backoff.retry(|| listener.accept()).await;
            if let Some(permit) = self.counter.admit(None, true) {
                let peer = ();
                return AcceptedConnection {
                    stream,
                    peer,
                    permit,
                };
            }
        }
    }
}

/// Runs a connection until it ends, or until it is closed for a newer one. `eviction` is that of its
/// permit.
pub(crate) async fn run_until_evicted(
    eviction: Option<CancellationToken>,
    connection: impl Future<Output = ()>,
) {
    match eviction {
        Some(eviction) => drop(eviction.run_until_cancelled(connection).await),
        None => connection.await,
    }
}

/// Returns the key of a client in the limits: its IPv4 address, or the /64 prefix of an IPv6 address.
fn client_address(ip: IpAddr) -> ClientAddress {
    ClientAddress::from_ipv6(match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    })
}

/// Exponential backoff for failing accepts. Holds the last delay, `None` after a success.
#[derive(Debug, Default)]
struct AcceptBackoff(Option<Duration>);

impl AcceptBackoff {
    /// Accepts until it succeeds. Connections that the client has aborted are skipped.
    async fn retry<T, F>(&mut self, accept: impl Fn() -> F) -> T
    where
        F: Future<Output = io::Result<T>>,
    {
        loop {
            match accept().await {
                Ok(accepted) => {
                    if self.reset() {
                        tracing::info!("accepting connections again");
                    }
                    return accepted;
                }
                Err(error) if is_client_abort(&error) => {}
                Err(error) => {
                    if self.is_reset() {
                        tracing::error!(%error, "cannot accept connections");
                    }
                    sleep(self.next_delay()).await;
                }
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn d05_a_network_counts_as_one_address() {
        let key = |text: &str| client_address(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
    }
}
