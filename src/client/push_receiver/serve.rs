//! Minimal HTTP/1.1 server for a receiver that is not part of another server.
//!
//! Connections beyond the limit are served too. The oldest of them that has not authenticated is closed for a new one, so
//! silent connections do not lock senders out (D20).

use std::convert::Infallible;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PushReceiver;
use crate::rt::{ConnectionLimits, ConnectionPermit, LimitedListener, run_until_evicted};

/// Maximum number of connections beyond the limit.
const RESERVED_CONNECTIONS: usize = 16;

impl PushReceiver {
    /// Serves HTTP/1.1 on this listener until the future is dropped. Then all connections are closed.
    pub async fn serve(self, listener: TcpListener) {
        let limits = ConnectionLimits::new(self.settings.max_connections);
        let mut listener = LimitedListener::new(listener, limits.reserve(RESERVED_CONNECTIONS));
        let receiver = Arc::new(self);
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        loop {
            let accepted = listener.accept().await;
            let eviction = accepted.permit.eviction();
            let connection = receiver
                .clone()
                .serve_connection(accepted.stream, accepted.permit);
            let connection = run_until_evicted(eviction, connection);
            tasks.spawn(stop.clone().run_until_cancelled_owned(connection));
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: TcpStream, permit: ConnectionPermit) {
        let header_timeout = self.settings.header_timeout;
        let permit = Arc::new(permit);
        let handler = service_fn(move |request: Request<Incoming>| {
            let receiver = self.clone();
            if receiver.is_authenticated(request.headers()) {
                permit.protect();
            }
            async move { Ok::<_, Infallible>(receiver.handle(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .serve_connection(TokioIo::new(stream), handler);
        // The peer may close the connection at any time.
        let _ = connection.await;
    }
}
