//! The accept loop: takes connections, serves HTTP/1 and HTTP/2 on them, drains at the end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Request;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::door::{Door, Place};
use super::idle::Calls;
use super::io::Io;
use super::reply::Reply;
use super::running::Current;
use super::settings::ServerSettings;
use super::taken;
use super::timer::Lazy;
use crate::stop;

/// How long those may take to say so whose turn was dropped when the server stopped.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often a silent HTTP/2 peer is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);

/// A connection that is not the bare one.
pub(super) type Connection = Box<dyn Bytes>;

/// What HTTP is spoken over.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// What comes before HTTP on a connection.
#[async_trait]
pub(super) trait Handshake: Send + Sync {
    /// The connection, and the certificate that the caller has shown.
    async fn shake(&self, stream: TcpStream) -> io::Result<(Connection, Option<Certificate>)>;
}

/// A certificate that the handshake has verified, in DER.
pub(super) type Certificate = Arc<[u8]>;

/// Who is at the other end of a connection.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<Certificate>,
}

/// Serves until `shutdown` is ready, then drains. Whatever is left after the grace period is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    current: Arc<Current>,
    handshake: Option<Arc<dyn Handshake>>,
    (tasks, stop): (TaskTracker, CancellationToken),
    shutdown: impl Future<Output = ()>,
) {
    let gone = CancellationToken::new();
    // Also when this future is dropped: nothing outlives it.
    let _ends = (stop.clone().drop_guard(), gone.clone().drop_guard());
    let mut door = Door::new(listener, current.get().settings.max_connections);
    let server = Connections {
        handshake,
        gone,
        ..Connections::new(current, tasks, stop)
    };
    let graceful = GracefulShutdown::new();
    let visits = async {
        loop {
            let (stream, peer, place) = door.next().await;
            server.accept(stream, peer, place, graceful.watcher());
        }
    };
    tokio::select! {
        biased;
        () = async { shutdown.await; server.leave().await } => {}
        () = visits => {}
    }
    drop(door);
    server.drain(graceful).await;
}

/// Where connections are served, wherever they come from.
pub(super) struct Connections {
    current: Arc<Current>,
    http: Arc<Http>,
    handshake: Option<Arc<dyn Handshake>>,
    tasks: TaskTracker,
    /// Ends turns, and so whatever waits for them.
    stop: CancellationToken,
    /// Ends connections.
    gone: CancellationToken,
}

impl Connections {
    pub(super) fn new(current: Arc<Current>, tasks: TaskTracker, stop: CancellationToken) -> Self {
        let http = Arc::new(Http::new(&tasks, &current.get().settings));
        Self {
            current,
            http,
            handshake: None,
            tasks,
            gone: stop.clone(),
            stop,
        }
    }

    fn accept(&self, stream: TcpStream, peer: SocketAddr, place: Place, watcher: Watcher) {
        // Answers are written whole: waiting for more to send with them only makes them late.
        let _ = stream.set_nodelay(true);
        let Some(handshake) = self.handshake.clone() else {
            return self.take(stream, peer, place, watcher);
        };
        let (http, mut visit) = (self.http.clone(), self.visit(peer, place, watcher));
        let served = Box::pin(async move {
            if let Some((connection, certificate)) = visit.begin(handshake.shake(stream)).await {
                visit.peer.certificate = certificate;
                http.open(connection, visit).await;
            }
        });
        self.tasks.spawn(stop::until(self.gone.clone(), served));
    }

    /// Serves a connection on which HTTP is spoken at once.
    pub(super) fn take<S>(&self, stream: S, peer: SocketAddr, place: Place, watcher: Watcher)
    where
        S: Bytes + 'static,
    {
        let (http, visit) = (self.http.clone(), self.visit(peer, place, watcher));
        let served = Box::pin(http.open(stream, visit));
        self.tasks.spawn(stop::until(self.gone.clone(), served));
    }

    fn visit(&self, peer: SocketAddr, place: Place, watcher: Watcher) -> Visit {
        let peer = Peer {
            address: peer,
            certificate: None,
        };
        let routes = self.current.get();
        let (settings, drain) = (routes.settings.clone(), routes.drain.clone());
        Visit {
            current: self.current.clone(),
            settings,
            drain,
            peer,
            watcher,
            _place: place,
        }
    }

    /// Lets it be known that calls should go elsewhere, and gives those who send them time to hear it.
    async fn leave(&self) {
        let routes = self.current.get();
        routes.leaving.cancel();
        sleep(routes.settings.shutdown_delay).await;
    }

    async fn drain(self, graceful: GracefulShutdown) {
        self.tasks.close();
        // Those who read streams go first, and come again elsewhere.
        let routes = self.current.get();
        routes.drain.cancel();
        let drained = async {
            graceful.shutdown().await;
            self.tasks.wait().await;
        };
        tokio::select! {
            () = drained => {}
            () = sleep(routes.settings.shutdown_grace) => {
                tracing::warn!("calls or turns dropped after the grace period");
            }
        }
        self.stop.cancel();
        // Calls whose turn was dropped tell their callers which task that was.
        let _ = timeout(LAST_WORDS, self.tasks.wait()).await;
        self.gone.cancel();
        self.tasks.wait().await;
    }
}

/// A connection's time with us.
struct Visit {
    current: Arc<Current>,
    /// As they were when it came.
    settings: Arc<ServerSettings>,
    drain: CancellationToken,
    peer: Peer,
    watcher: Watcher,
    _place: Place,
}

impl Visit {
    /// What a connection begins with. Whoever says nothing in time is told nothing; nor does the server wait for it
    /// when it is to stop.
    async fn begin<T>(&self, said: impl Future<Output = io::Result<T>>) -> Option<T> {
        tokio::select! {
            biased;
            said = timeout(self.settings.header_timeout, said) => said.ok()?.ok(),
            () = self.drain.cancelled() => None,
        }
    }
}

/// The two ways to speak HTTP. Which one is known before either is set up: a connection that might become both costs
/// half as much memory again.
struct Http {
    one: http1::Builder,
    tasks: TaskTracker,
}

impl Http {
    fn new(tasks: &TaskTracker, settings: &ServerSettings) -> Self {
        let mut one = http1::Builder::new();
        // Flat writes: an answer is one piece, and small. Not `pipeline_flush`, which is flat too, but buffers for a peer
        // that does not read without a limit, and holds streams back from one that has asked for more.
        one.header_read_timeout(settings.header_timeout)
            .writev(false);
        one.max_header_size(settings.max_header_bytes);
        Self {
            one,
            tasks: tasks.clone(),
        }
    }

    /// HTTP/2 for one connection, whose calls are counted.
    fn two(&self, settings: &ServerSettings, calls: Arc<Calls>) -> http2::Builder<OnTracker> {
        let patience = settings.write_timeout;
        let mut two = http2::Builder::new(OnTracker {
            tasks: self.tasks.clone(),
            patience,
            calls,
        });
        two.timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING);
        two.max_concurrent_streams(settings.max_concurrent_calls);
        two.max_header_list_size(u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX));
        two
    }

    /// Sees which of them a connection speaks, and serves it to its end.
    async fn open<S: Bytes + 'static>(self: Arc<Self>, stream: S, visit: Visit) {
        let opened = visit.begin(Io::open(stream, visit.settings.write_timeout));
        let Some((io, is_http2)) = opened.await else {
            return;
        };
        let ended = match is_http2 {
            true => Box::pin(self.serve_two(io, visit)).await,
            false => {
                let Visit {
                    current,
                    peer,
                    watcher,
                    _place,
                    ..
                } = visit;
                let peer = Arc::new(peer);
                let service =
                    service_fn(move |request| answer(current.clone(), peer.clone(), request));
                let mut one = self.one.clone();
                one.timer(Lazy::default());
                watcher
                    .watch(one.serve_connection(TokioIo::new(io), service))
                    .await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "connection ended early"
            );
        }
    }

    /// Serves HTTP/2 until the peer leaves, has wanted nothing for long enough, or the server is to stop.
    async fn serve_two<S: Bytes + 'static>(&self, io: Io<S>, visit: Visit) -> hyper::Result<()> {
        // Whoever stops the server waits for the watcher.
        let Visit {
            current,
            settings,
            drain,
            peer,
            watcher: _watcher,
            _place,
        } = visit;
        let (calls, peer) = (Arc::new(Calls::default()), Arc::new(peer));
        let service = service_fn(|request| answer(current.clone(), peer.clone(), request));
        let connection = self
            .two(&settings, calls.clone())
            .serve_connection(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = &mut connection => return ended,
            () = drain.cancelled() => {}
            () = calls.idle(settings.idle_timeout) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    }
}

async fn answer(
    current: Arc<Current>,
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let routes = current.get();
    // HTTP keeps room for this future as long as the connection lasts, streams included.
    // And each function that hands the request on would keep room for it too.
    Ok(Box::pin(routes.answer(&peer, Box::new(request))).await)
}

/// Lets HTTP/2 start its streams where everything else runs, and ends those whose peer does not take them.
#[derive(Clone)]
struct OnTracker {
    tasks: TaskTracker,
    patience: Duration,
    calls: Arc<Calls>,
}

impl<F> Executor<F> for OnTracker
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        let (patience, call) = (self.patience, self.calls.begin());
        self.tasks.spawn(async move {
            let _call = call;
            taken::within(patience, future).await
        });
    }
}
