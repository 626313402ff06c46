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
use super::listener::{AcceptedConnection, ConnectionPermit, LimitedListener};
use super::transport::{ByteStream, ConnectionPeer, TlsHandshake};
use crate::rt::cancel;

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
    pub(super) async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let _stop_on_drop = self.stop.clone().drop_guard();
        let _close_on_drop = self.close_connections.clone().drop_guard();
        let max_connections = self.current.get().settings.max_connections;
        let mut listener = LimitedListener::new(listener, max_connections);
        let graceful = GracefulShutdown::new();
        let accept_loop = async {
            loop {
                self.accept(listener.accept().await, graceful.watcher());
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

    fn accept(&self, accepted: AcceptedConnection, watcher: Watcher) {
        let AcceptedConnection {
            stream,
            peer,
            permit,
        } = accepted;
        // Replies are written whole. Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        match self.handshake.clone() {
            Some(handshake) => {
                self.serve_tls(stream, handshake, self.new_context(peer, permit, watcher));
            }
            None => self.serve_connection(stream, peer, permit, watcher),
        }
    }

    fn serve_tls(
        &self,
        stream: TcpStream,
        handshake: Arc<dyn TlsHandshake>,
        mut context: ConnectionContext,
    ) {
        let http = self.http.clone();
        self.spawn(async move {
            if let Some(secure) = context.await_start(handshake.perform(stream)).await {
                context.peer.certificate = secure.certificate;
                http.serve(secure.stream, context).await;
            }
        });
    }

    /// Serves a connection without a handshake.
    pub(super) fn serve_connection<S>(
        &self,
        stream: S,
        peer: SocketAddr,
        permit: ConnectionPermit,
        watcher: Watcher,
    ) where
        S: ByteStream + 'static,
    {
        let context = self.new_context(peer, permit, watcher);
        self.spawn(self.http.clone().serve(stream, context));
    }

    /// Runs a connection on the tracker until it ends or all connections are closed.
    fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let connection = Box::pin(connection);
        let close = self.close_connections.clone();
        self.tasks.spawn(cancel::run_until(close, connection));
    }

    fn new_context(
        &self,
        peer: SocketAddr,
        permit: ConnectionPermit,
        watcher: Watcher,
    ) -> ConnectionContext {
        let routes = self.current.get();
        ConnectionContext {
            current: self.current.clone(),
            settings: routes.settings.clone(),
            drain: routes.drain.clone(),
            peer: ConnectionPeer {
                address: peer,
                certificate: None,
            },
            watcher,
            _permit: permit,
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
