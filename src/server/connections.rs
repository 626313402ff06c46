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

use super::active_streams::ActiveStreams;
use super::connection_io::ConnectionIo;
use super::h2_stall;
use super::handle::CurrentRoutes;
use super::listener::{ConnectionPermit, LimitedListener};
use super::reply::Reply;
use super::settings::ServerSettings;
use super::timer::ReusableTimer;
use crate::rt::cancel;

/// How long those may take to say so whose turn was dropped when the server stopped.
const FINAL_REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a silent HTTP/2 peer is asked whether it is there, and how long it may take to say so.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);

/// A connection that is not the bare one.
pub(super) type BoxedByteStream = Box<dyn ByteStream>;

/// What HTTP is spoken over.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// What comes before HTTP on a connection.
#[async_trait]
pub(super) trait TlsHandshake: Send + Sync {
    /// The connection, and the certificate that the caller has shown.
    async fn perform(
        &self,
        stream: TcpStream,
    ) -> io::Result<(BoxedByteStream, Option<Certificate>)>;
}

/// A certificate that the handshake has verified, in DER.
pub(super) type Certificate = Arc<[u8]>;

/// Who is at the other end of a connection.
pub(super) struct ConnectionPeer {
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<Certificate>,
}

/// Serves until `shutdown` is ready, then drains. Whatever is left after the grace period is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    current: Arc<CurrentRoutes>,
    handshake: Option<Arc<dyn TlsHandshake>>,
    (tasks, stop): (TaskTracker, CancellationToken),
    shutdown: impl Future<Output = ()>,
) {
    let close_connections = CancellationToken::new();
    // Also when this future is dropped: nothing outlives it.
    let _guards = (
        stop.clone().drop_guard(),
        close_connections.clone().drop_guard(),
    );
    let mut listener = LimitedListener::new(listener, current.get().settings.max_connections);
    let server = HttpServer {
        handshake,
        close_connections,
        ..HttpServer::new(current, tasks, stop)
    };
    let graceful = GracefulShutdown::new();
    let accept_loop = async {
        loop {
            let (stream, peer, permit) = listener.accept().await;
            server.accept(stream, peer, permit, graceful.watcher());
        }
    };
    tokio::select! {
        biased;
        () = async { shutdown.await; server.announce_shutdown().await } => {}
        () = accept_loop => {}
    }
    drop(listener);
    server.drain(graceful).await;
}

/// Where connections are served, wherever they come from.
pub(super) struct HttpServer {
    current: Arc<CurrentRoutes>,
    http: Arc<HttpProtocols>,
    handshake: Option<Arc<dyn TlsHandshake>>,
    tasks: TaskTracker,
    /// Ends turns, and so whatever waits for them.
    stop: CancellationToken,
    /// Ends connections.
    close_connections: CancellationToken,
}

impl HttpServer {
    pub(super) fn new(
        current: Arc<CurrentRoutes>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let http = Arc::new(HttpProtocols::new(&tasks, &current.get().settings));
        Self {
            current,
            http,
            handshake: None,
            tasks,
            close_connections: stop.clone(),
            stop,
        }
    }

    fn accept(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        permit: ConnectionPermit,
        watcher: Watcher,
    ) {
        // Answers are written whole: waiting for more to send with them only makes them late.
        let _ = stream.set_nodelay(true);
        let Some(handshake) = self.handshake.clone() else {
            return self.serve_connection(stream, peer, permit, watcher);
        };
        let (http, mut context) = (self.http.clone(), self.new_context(peer, permit, watcher));
        let serving = Box::pin(async move {
            if let Some((connection, certificate)) =
                context.await_start(handshake.perform(stream)).await
            {
                context.peer.certificate = certificate;
                http.serve(connection, context).await;
            }
        });
        self.tasks
            .spawn(cancel::run_until(self.close_connections.clone(), serving));
    }

    /// Serves a connection on which HTTP is spoken at once.
    pub(super) fn serve_connection<S>(
        &self,
        stream: S,
        peer: SocketAddr,
        permit: ConnectionPermit,
        watcher: Watcher,
    ) where
        S: ByteStream + 'static,
    {
        let (http, context) = (self.http.clone(), self.new_context(peer, permit, watcher));
        let serving = Box::pin(http.serve(stream, context));
        self.tasks
            .spawn(cancel::run_until(self.close_connections.clone(), serving));
    }

    fn new_context(
        &self,
        peer: SocketAddr,
        permit: ConnectionPermit,
        watcher: Watcher,
    ) -> ConnectionContext {
        let peer = ConnectionPeer {
            address: peer,
            certificate: None,
        };
        let routes = self.current.get();
        let (settings, drain) = (routes.settings.clone(), routes.drain.clone());
        ConnectionContext {
            current: self.current.clone(),
            settings,
            drain,
            peer,
            watcher,
            _permit: permit,
        }
    }

    /// Lets it be known that calls should go elsewhere, and gives those who send them time to hear it.
    async fn announce_shutdown(&self) {
        let routes = self.current.get();
        routes.shutting_down.cancel();
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
        let _ = timeout(FINAL_REPLY_TIMEOUT, self.tasks.wait()).await;
        self.close_connections.cancel();
        self.tasks.wait().await;
    }
}

/// A connection's time with us.
struct ConnectionContext {
    current: Arc<CurrentRoutes>,
    /// As they were when it came.
    settings: Arc<ServerSettings>,
    drain: CancellationToken,
    peer: ConnectionPeer,
    watcher: Watcher,
    _permit: ConnectionPermit,
}

impl ConnectionContext {
    /// What a connection begins with. Whoever says nothing in time is told nothing; nor does the server wait for it
    /// when it is to stop.
    async fn await_start<T>(&self, start: impl Future<Output = io::Result<T>>) -> Option<T> {
        tokio::select! {
            biased;
            start = timeout(self.settings.header_timeout, start) => start.ok()?.ok(),
            () = self.drain.cancelled() => None,
        }
    }
}

/// The http2 ways to speak HTTP. Which one is known before either is set up: a connection that might become both costs
/// half as much memory again.
struct HttpProtocols {
    http1: http1::Builder,
    tasks: TaskTracker,
}

impl HttpProtocols {
    fn new(tasks: &TaskTracker, settings: &ServerSettings) -> Self {
        let mut http1 = http1::Builder::new();
        // Flat writes: an answer is one piece, and small. Not `pipeline_flush`, which is flat too, but buffers for a peer
        // that does not read without a limit, and holds streams back from one that has asked for more.
        http1
            .header_read_timeout(settings.header_timeout)
            .writev(false);
        http1.max_header_size(settings.max_header_bytes);
        Self {
            http1,
            tasks: tasks.clone(),
        }
    }

    /// HTTP/2 for one connection, whose calls are counted.
    fn http2_builder(
        &self,
        settings: &ServerSettings,
        streams: Arc<ActiveStreams>,
    ) -> http2::Builder<TrackedExecutor> {
        let stall_timeout = settings.write_timeout;
        let mut http2 = http2::Builder::new(TrackedExecutor {
            tasks: self.tasks.clone(),
            stall_timeout,
            streams,
        });
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .keep_alive_timeout(HTTP2_PING_INTERVAL);
        http2.max_concurrent_streams(settings.max_concurrent_calls);
        http2.max_header_list_size(u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX));
        http2
    }

    /// Sees which of them a connection speaks, and serves it to its end.
    async fn serve<S: ByteStream + 'static>(
        self: Arc<Self>,
        stream: S,
        context: ConnectionContext,
    ) {
        let detected =
            context.await_start(ConnectionIo::detect(stream, context.settings.write_timeout));
        let Some((io, is_http2)) = detected.await else {
            return;
        };
        let ended = match is_http2 {
            true => Box::pin(self.serve_http2(io, context)).await,
            false => {
                let ConnectionContext {
                    current,
                    peer,
                    watcher,
                    _permit,
                    ..
                } = context;
                let peer = Arc::new(peer);
                let service = service_fn(move |request| {
                    handle_request(current.clone(), peer.clone(), request)
                });
                let mut http1 = self.http1.clone();
                http1.timer(ReusableTimer::default());
                watcher
                    .watch(http1.serve_connection(TokioIo::new(io), service))
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
    async fn serve_http2<S: ByteStream + 'static>(
        &self,
        io: ConnectionIo<S>,
        context: ConnectionContext,
    ) -> hyper::Result<()> {
        // Whoever stops the server waits for the watcher.
        let ConnectionContext {
            current,
            settings,
            drain,
            peer,
            watcher: _watcher,
            _permit,
        } = context;
        let (streams, peer) = (Arc::new(ActiveStreams::default()), Arc::new(peer));
        let service = service_fn(|request| handle_request(current.clone(), peer.clone(), request));
        let connection = self
            .http2_builder(&settings, streams.clone())
            .serve_connection(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = &mut connection => return ended,
            () = drain.cancelled() => {}
            () = streams.wait_until_idle(settings.idle_timeout) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    }
}

async fn handle_request(
    current: Arc<CurrentRoutes>,
    peer: Arc<ConnectionPeer>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let routes = current.get();
    // HTTP keeps room for this future as long as the connection lasts, streams included.
    // And each function that hands the request on would keep room for it too.
    Ok(Box::pin(routes.handle(&peer, Box::new(request))).await)
}

/// Lets HTTP/2 start its streams where everything else runs, and ends those whose peer does not take them.
#[derive(Clone)]
struct TrackedExecutor {
    tasks: TaskTracker,
    stall_timeout: Duration,
    streams: Arc<ActiveStreams>,
}

impl<F> Executor<F> for TrackedExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        let (stall_timeout, stream) = (self.stall_timeout, self.streams.start());
        self.tasks.spawn(async move {
            let _stream = stream;
            h2_stall::timeout(stall_timeout, future).await
        });
    }
}
