//! TCP proxy in front of the server of the tests: cuts connections at chosen chunks, rewrites requests, terminates TLS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::rt::lock;

/// Direction of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// How much of the chunk passes before the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    Nothing,
    Half,
    All,
}

/// Cut of all connections at one chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) direction: Direction,
    /// Number of the chunk in its direction over all connections, from 0 on.
    pub(super) chunk: usize,
    pub(super) passed: Passed,
}

/// Running proxy. It ends when it is dropped.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    control: Arc<Control>,
    _guard: DropGuard,
}

#[derive(Default)]
struct Control {
    cut: Mutex<Option<Cut>>,
    to_server: AtomicUsize,
    to_client: AtomicUsize,
    /// Changes when all connections are to be closed.
    closes: watch::Sender<u64>,
    refuses: AtomicBool,
    /// Texts of equal length that replace others on the way to the server.
    rewrites: Vec<(Vec<u8>, Vec<u8>)>,
    acceptor: Option<TlsAcceptor>,
}

impl Proxy {
    pub(super) async fn start(server: SocketAddr) -> Self {
        Self::start_with(server, Control::default()).await
    }

    /// Starts a proxy that replaces a text on the way to the server. The length of the message stays.
    pub(super) async fn rewriting(server: SocketAddr, from: &str, to: &str) -> Self {
        let to = format!("{to:<width$}", width = from.len());
        assert_eq!(from.len(), to.len());
        let control = Control {
            rewrites: vec![(from.into(), to.into())],
            ..Control::default()
        };
        Self::start_with(server, control).await
    }

    /// Starts a proxy that accepts TLS and talks to the server without.
    pub(super) async fn with_tls(server: SocketAddr, acceptor: TlsAcceptor) -> Self {
        let control = Control {
            acceptor: Some(acceptor),
            ..Control::default()
        };
        Self::start_with(server, control).await
    }

    async fn start_with(server: SocketAddr, control: Control) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let control = Arc::new(control);
        let cancel = CancellationToken::new();
        let tracker = TaskTracker::new();
        let accepting = {
            let control = Arc::clone(&control);
            let cancel = cancel.clone();
            let tracker = tracker.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    if control.refuses.load(Ordering::SeqCst) {
                        continue;
                    }
                    let relayed = relay(client, server, Arc::clone(&control));
                    tracker.spawn(cancel.clone().run_until_cancelled_owned(relayed));
                }
            }
        };
        tracker.spawn(cancel.clone().run_until_cancelled_owned(accepting));
        Self {
            address,
            control,
            _guard: cancel.drop_guard(),
        }
    }

    /// Plans a cut. Chunks are counted from now on.
    pub(super) fn arm(&self, cut: Cut) {
        self.control.to_server.store(0, Ordering::SeqCst);
        self.control.to_client.store(0, Ordering::SeqCst);
        *lock(&self.control.cut) = Some(cut);
    }

    /// Cancels the planned cut. Returns whether it had not happened.
    pub(super) fn disarm(&self) -> bool {
        lock(&self.control.cut).take().is_some()
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        self.control.closes.send_modify(|closes| *closes += 1);
    }

    /// Sets whether new connections are closed at once.
    pub(super) fn refuse(&self, refuses: bool) {
        self.control.refuses.store(refuses, Ordering::SeqCst);
    }
}

async fn relay(client: TcpStream, server: SocketAddr, control: Arc<Control>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    match &control.acceptor {
        None => relay_streams(client, server, &control).await,
        Some(acceptor) => {
            let mut client = client;
            // SSLRequest: length 8 and the code 80877103.
            let mut request = [0; 8];
            client.read_exact(&mut request).await.unwrap();
            client.write_all(b"S").await.unwrap();
            if let Ok(client) = acceptor.accept(client).await {
                relay_streams(client, server, &control).await;
            }
        }
    }
}

async fn relay_streams(
    client: impl AsyncRead + AsyncWrite,
    server: TcpStream,
    control: &Arc<Control>,
) {
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = server.into_split();
    let mut closes = control.closes.subscribe();
    tokio::select! {
        () = copy(client_read, server_write, Direction::ToServer, control) => {}
        () = copy(server_read, client_write, Direction::ToClient, control) => {}
        _ = closes.changed() => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    control: &Control,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let chunk = &mut buffer[..length];
        for (from, to) in &control.rewrites {
            let found = chunk.windows(from.len()).position(|part| part == from);
            if let (Direction::ToServer, Some(at)) = (direction, found) {
                chunk[at..at + to.len()].copy_from_slice(to);
            }
        }
        let counter = match direction {
            Direction::ToServer => &control.to_server,
            Direction::ToClient => &control.to_client,
        };
        let number = counter.fetch_add(1, Ordering::SeqCst);
        let cut = {
            let mut cut = lock(&control.cut);
            let is_now = cut.is_some_and(|cut| cut.direction == direction && cut.chunk == number);
            is_now.then(|| cut.take()).flatten()
        };
        let Some(cut) = cut else {
            if to.write_all(chunk).await.is_err() {
                return;
            }
            continue;
        };
        let passed = match cut.passed {
            Passed::Nothing => 0,
            Passed::Half => length / 2,
            Passed::All => length,
        };
        let _ = to.write_all(&chunk[..passed]).await;
        let _ = to.flush().await;
        control.closes.send_modify(|closes| *closes += 1);
        return;
    }
}
