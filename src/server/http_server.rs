//! HTTP server: accepts connections, and drains them on shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::{ConnectionContext, HttpProtocols};
use super::handle::CurrentRoutes;
use super::peer::{CallerConnections, CloseRequest, ConnectionPeer};
use super::transport::{ByteStream, TlsHandshake};
use crate::rt::{ConnectionPermit, LimitedListener, cancel};

/// Time for the last replies after running turns were cancelled. They name the interrupted tasks.
const FINAL_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Server of HTTP connections, from a listener or from inside the process.
pub(super) struct HttpServer {
    current: Arc<CurrentRoutes>,
    http: Arc<HttpProtocols>,
    handshake: Option<Arc<dyn TlsHandshake>>,
    tasks: TaskTracker,
    /// Cancels running turns, and with them the calls that wait for them.
    stop: CancellationToken,
    /// Closes all connections.
    close_connections: CancellationToken,
    /// Connections by caller. `None`: not limited.
    caller_connections: Option<Arc<CallerConnections>>,
}

impl HttpServer {
    /// Creates a server without TLS whose connections close when `stop` is cancelled.
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
            caller_connections: None,
        }
    }

    /// Sets the TLS handshake, and lets connections outlive `stop` until the drain has ended.
    pub(super) fn with_handshake(self, handshake: Option<Arc<dyn TlsHandshake>>) -> Self {
        Self {
            handshake,
            close_connections: CancellationToken::new(),
            ..self
        }
    }

    /// Accepts connections until `shutdown` is ready, then drains. Dropping the future closes all
    /// connections.
    pub(super) async fn serve(mut self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let _stop_on_drop = self.stop.clone().drop_guard();
        let _close_on_drop = self.close_connections.clone().drop_guard();
        let mut listener = self.limit(listener);
        let graceful = GracefulShutdown::new();
        let accept_loop = async {
            loop {
                let accepted = listener.accept().await;
                let permit = Some(accepted.permit);
                let context = self.new_context(accepted.peer, permit, graceful.watcher());
                self.accept(accepted.stream, context);
            }
        };
        let shutdown = async {
            shutdown.await;
            self.announce_shutdown().await;
        };
        tokio::select! {
            biased;
            () = shutdown => {}
            () = accept_loop => {}
        }
        drop(listener);
        self.drain(graceful).await;
    }

    /// Applies the limits on connections: in total, per address and per caller.
    fn limit(&mut self, listener: TcpListener) -> LimitedListener<TcpListener> {
        let settings = self.current.get().settings.clone();
        let current = self.current.clone();
        let listener = LimitedListener::new(listener, settings.connection_limits());
        let half = listener.limits().total.div_ceil(2);
        let max_per_caller = match settings.max_connections_per_caller {
            // The limit on open files has lowered the total.
            Some(limit) if listener.limits().total < settings.max_connections => limit.min(half),
            Some(limit) => limit,
            None => half,
        };
        self.caller_connections = Some(CallerConnections::new(max_per_caller));
        listener.exempt(move |ip| current.get().may_hold_all_connections(ip))
    }

    fn accept(&self, stream: TcpStream, context: ConnectionContext) {
        // Replies are written whole. Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        match self.handshake.clone() {
            Some(handshake) => self.serve_tls(stream, handshake, context),
            None => self.serve_stream(stream, context),
        }
    }

    fn serve_tls(
        &self,
        stream: TcpStream,
        handshake: Arc<dyn TlsHandshake>,
        mut context: ConnectionContext,
    ) {
        let http = self.http.clone();
        let eviction = context.eviction();
        self.spawn(eviction, async move {
            if let Some(secure) = context.await_start(handshake.perform(stream)).await {
                // The connection has no other reference to its peer before its first request.
                if let Some(peer) = Arc::get_mut(&mut context.peer) {
                    peer.certificate = secure.certificate;
                }
                http.serve(secure.stream, context).await;
            }
        });
    }

    /// Serves a connection from inside the process, without limits.
    #[cfg(feature = "client")]
    pub(super) fn serve_connection<S>(&self, stream: S, peer: SocketAddr, watcher: Watcher)
    where
        S: ByteStream + 'static,
    {
        self.serve_stream(stream, self.new_context(peer, None, watcher));
    }

    /// Serves a connection without a handshake.
    fn serve_stream<S: ByteStream + 'static>(&self, stream: S, context: ConnectionContext) {
        let eviction = context.eviction();
        self.spawn(eviction, self.http.clone().serve(stream, context));
    }

    /// Runs a connection on the tracker until it ends, it is evicted, or all connections are closed.
    fn spawn(
        &self,
        eviction: Option<CancellationToken>,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        let connection = Box::pin(connection);
        let close = self.close_connections.clone();
        match eviction {
            None => self.tasks.spawn(cancel::run_until(close, connection)),
            Some(eviction) => self.tasks.spawn(async move {
                let connection = cancel::run_until(close, connection);
                eviction.run_until_cancelled(connection).await;
            }),
        };
    }

    fn new_context(
        &self,
        peer: SocketAddr,
        permit: Option<ConnectionPermit>,
        watcher: Watcher,
    ) -> ConnectionContext {
        let routes = self.current.get();
        // A trusted proxy uses a connection for several callers.
        let counter = self.caller_connections.as_ref();
        let counter = counter.filter(|_| !routes.settings.is_trusted_proxy(peer.ip()));
        ConnectionContext {
            current: self.current.clone(),
            settings: routes.settings.clone(),
            drain: routes.drain.clone(),
            peer: Arc::new(ConnectionPeer {
                address: peer,
                certificate: None,
                permit,
                caller: counter.map(CallerConnections::slot),
                closing: CloseRequest::default(),
            }),
            watcher,
        }
    }

    /// Makes `/readyz` report that the server is not ready, and waits for `shutdown_delay`.
    async fn announce_shutdown(&self) {
        let routes = self.current.get();
        routes.shutting_down.cancel();
        sleep(routes.settings.shutdown_delay).await;
    }

    /// Ends streams, waits for calls and turns up to `shutdown_grace`, then cancels turns and
    /// closes connections.
    async fn drain(self, graceful: GracefulShutdown) {
        self.tasks.close();
        let routes = self.current.get();
        // Streams end first, so that their subscribers reconnect elsewhere.
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
        let _ = timeout(FINAL_REPLY_TIMEOUT, self.tasks.wait()).await;
        self.close_connections.cancel();
        self.tasks.wait().await;
    }
}
