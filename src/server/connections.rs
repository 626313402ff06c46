//! One connection: protocol detection, HTTP/1 and HTTP/2, and the entry of every request
//! ([`handle_request`]).

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, RETRY_AFTER};
use http::{HeaderValue, Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, Watcher};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::active_streams::ActiveStreams;
use super::connection_io::{ConnectionIo, HttpVersion};
use super::h2_stall::{self, WatchedBody};
use super::handle::CurrentRoutes;
use super::http1_head::{HeadError, check_http1_head};
use super::peer::{self, ConnectionPeer};
use super::reply::{self, Reply};
use super::routes;
use super::settings::ServerSettings;
use super::timer::ReusableTimer;
use super::transport::ByteStream;
use super::unsent_frames::UnsentFrames;

/// Interval of HTTP/2 pings on a silent connection, and the timeout of their replies.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Bytes of a response that hyper buffers for a peer that does not read, for each connection or HTTP/2 stream. They do
/// not count against the byte budget. hyper's default is 400 KiB.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Longest time that a connection in the reserve waits for a request.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent HTTP/2 streams of a connection in the reserve.
const MAX_PROBE_STREAMS: u32 = 8;

/// State of one connection.
pub(super) struct ConnectionContext {
    pub(super) current: Arc<CurrentRoutes>,
    /// Settings at the time the connection was accepted.
    pub(super) settings: Arc<ServerSettings>,
    pub(super) drain: CancellationToken,
    pub(super) peer: Arc<ConnectionPeer>,
    /// Graceful shutdown waits until it is dropped.
    pub(super) watcher: Watcher,
}

impl ConnectionContext {
    /// Returns the token that closes a connection in the reserve for a newer one.
    pub(super) fn eviction(&self) -> Option<CancellationToken> {
        self.peer.permit.as_ref()?.eviction()
    }

    /// Awaits the start of a connection: handshake or first bytes. Returns `None` on failure, on
    /// timeout, and when the server drains.
    pub(super) async fn await_start<T>(
        &self,
        start: impl Future<Output = io::Result<T>>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            start = timeout(self.header_timeout(), start) => start.ok()?.ok(),
            () = self.drain.cancelled() => None,
        }
    }

    fn header_timeout(&self) -> Duration {
        let configured = self.settings.header_timeout;
        if self.peer.is_in_reserve() {
            return configured.min(PROBE_TIMEOUT);
        }
        configured
    }
}

/// Server side of HTTP/1 and HTTP/2.
///
/// The protocol is detected before either is set up. A connection that could become both takes 1.5
/// times the memory.
pub(super) struct HttpProtocols {
    http1: http1::Builder,
    tasks: TaskTracker,
}

impl HttpProtocols {
    pub(super) fn new(tasks: &TaskTracker, settings: &ServerSettings) -> Self {
        let mut http1 = http1::Builder::new();
        http1.max_header_size(settings.max_header_bytes);
        // Also bounds the request head that is read.
        http1.max_buf_size(settings.max_header_bytes.max(WRITE_BUFFER_BYTES));
        // Flattened writes: a reply is one small buffer. `pipeline_flush` flattens too, but buffers
        // without limit for a peer that does not read, and delays streams of a peer that has
        // pipelined another request.
        http1.writev(false);
        Self {
            http1,
            tasks: tasks.clone(),
        }
    }

    /// Detects the protocol of a connection and serves it until it ends.
    pub(super) async fn serve<S: ByteStream + 'static>(
        self: Arc<Self>,
        stream: S,
        context: ConnectionContext,
    ) {
        let detected =
            context.await_start(ConnectionIo::detect(stream, context.settings.write_timeout));
        let Some((io, version)) = detected.await else {
            return;
        };
        let ended = match version {
            HttpVersion::Http1 => {
                let timeout = context.header_timeout();
                let ConnectionContext {
                    current,
                    peer,
                    watcher,
                    ..
                } = context;
                watcher
                    .watch(self.http1_connection(io, current, peer, timeout))
                    .await
            }
            // Boxed: future size.
            HttpVersion::Http2 => Box::pin(self.serve_http2(io, context)).await,
        };
        if let Err(error) = ended {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "connection ended early"
            );
        }
    }

    /// Returns an HTTP/1 connection. It runs until the peer closes it or the server drains.
    fn http1_connection<S: ByteStream + 'static>(
        &self,
        io: ConnectionIo<S>,
        current: Arc<CurrentRoutes>,
        peer: Arc<ConnectionPeer>,
        header_timeout: Duration,
    ) -> impl GracefulConnection<Error = hyper::Error> + use<S> {
        let service =
            service_fn(move |request| handle_request(current.clone(), peer.clone(), request));
        let mut http1 = self.http1.clone();
        http1.timer(ReusableTimer::default());
        http1.header_read_timeout(header_timeout);
        http1.serve_connection(TokioIo::new(io), service)
    }

    /// Serves HTTP/2 until the peer closes the connection, it is idle, or the server drains.
    async fn serve_http2<S: ByteStream + 'static>(
        &self,
        io: ConnectionIo<S>,
        context: ConnectionContext,
    ) -> hyper::Result<()> {
        let limits = Http2Limits::new(&context);
        let ConnectionContext {
            current,
            settings,
            drain,
            peer,
            watcher: _watcher,
        } = context;
        let streams = Arc::new(ActiveStreams::default());
        let unsent = Arc::new(UnsentFrames::default());
        let service = service_fn(|request| {
            let reply = handle_request(current.clone(), peer.clone(), request);
            let unsent = unsent.clone();
            async {
                reply
                    .await
                    .map(|reply| reply.map(|body| WatchedBody::new(body, unsent)))
            }
        });
        let connection = self
            .http2_builder(&settings, limits.max_streams, streams.clone())
            .serve_connection(TokioIo::new(io), service);
        let mut connection = pin!(connection);
        tokio::select! {
            ended = &mut connection => return ended,
            () = drain.cancelled() => {}
            () = streams.wait_until_idle(limits.idle_timeout) => {}
            () = unsent.wait_until_stalled(settings.write_timeout) => return Ok(()),
            () = peer.closing.requested() => {}
        }
        connection.as_mut().graceful_shutdown();
        // A peer that answers pings need not close the connection.
        tokio::select! {
            ended = connection => ended,
            () = streams.wait_until_idle(settings.write_timeout) => Ok(()),
            () = unsent.wait_until_stalled(settings.write_timeout) => Ok(()),
        }
    }

    fn http2_builder(
        &self,
        settings: &ServerSettings,
        max_streams: u32,
        streams: Arc<ActiveStreams>,
    ) -> http2::Builder<TrackedExecutor> {
        let mut http2 = http2::Builder::new(TrackedExecutor {
            tasks: self.tasks.clone(),
            stall_timeout: settings.write_timeout,
            streams,
        });
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .keep_alive_timeout(HTTP2_PING_INTERVAL);
        http2.max_concurrent_streams(max_streams);
        http2.max_send_buf_size(WRITE_BUFFER_BYTES);
        http2.max_header_list_size(u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX));
        http2
    }
}

/// Limits of an HTTP/2 connection. They are lower in the reserve.
struct Http2Limits {
    max_streams: u32,
    idle_timeout: Duration,
}

impl Http2Limits {
    fn new(context: &ConnectionContext) -> Self {
        if context.peer.is_in_reserve() {
            return Self {
                max_streams: MAX_PROBE_STREAMS,
                idle_timeout: context.header_timeout(),
            };
        }
        Self {
            max_streams: context.settings.max_concurrent_calls,
            idle_timeout: context.settings.idle_timeout,
        }
    }
}

/// Handles one request with the current routes. A reload during the request does not affect it.
///
/// A connection in the reserve closes after its first reply.
async fn handle_request(
    current: Arc<CurrentRoutes>,
    peer: Arc<ConnectionPeer>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    if let Err(error) = check_http1_head(&request) {
        return Ok(refuse_head(error));
    }
    let version = request.version();
    let mut reply = match refuse_connection(&peer, &request) {
        Some(refusal) => refusal,
        None => {
            let routes = current.get();
            // Boxed: future size.
            Box::pin(routes.handle(&peer, Box::new(request))).await
        }
    };
    if peer.is_in_reserve() {
        peer.closing.request();
    }
    if peer.closing.is_requested() && version < Version::HTTP_2 {
        close_after(&mut reply);
    }
    Ok(reply)
}

/// Returns the reply to a request on a connection in the reserve. `None`: it is a health probe, or the
/// connection is within the limits.
fn refuse_connection(peer: &ConnectionPeer, request: &Request<Incoming>) -> Option<Reply> {
    let (limit, value) = peer.permit.as_ref()?.exceeded_limit()?;
    if routes::is_health_probe(request) {
        return None;
    }
    let message = format!("too many connections (limit: {limit} = {value})\n");
    let mut reply = reply::text(StatusCode::SERVICE_UNAVAILABLE, message);
    let seconds = reply::ceil_seconds(peer::RETRY_AFTER);
    reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    Some(reply)
}

/// Returns the reply to an ambiguous head, and closes the connection after it.
pub(super) fn refuse_head(error: HeadError) -> Reply {
    let mut reply = reply::text(error.status(), error.message());
    close_after(&mut reply);
    reply
}

/// Makes HTTP/1 close the connection after a reply.
fn close_after(reply: &mut Reply) {
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(CONNECTION, close);
}

/// Executor of HTTP/2 streams: runs them on the server's tracker, counts them, and ends stalled
/// ones.
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
        let stall_timeout = self.stall_timeout;
        let stream = self.streams.start();
        self.tasks.spawn(async move {
            let _stream = stream;
            h2_stall::timeout(stall_timeout, future).await
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;
    use crate::rt::future_size;
    use crate::server::chunked_stream::next_items;
    use crate::server::routes::Routes;
    use crate::service::turn_future_size;

    type HandleArguments = (
        &'static Routes,
        &'static ConnectionPeer,
        Box<Request<Incoming>>,
    );

    type ServeArguments = (Arc<HttpProtocols>, TcpStream, ConnectionContext);

    /// Idle connections, open streams and waiting turns hold these futures, so their size is memory
    /// per connection, stream and task. Most `Box::pin` calls on the way exist for these bounds.
    #[test]
    fn futures_of_connections_streams_and_turns_stay_small() {
        let connection =
            future_size(|(http, stream, context): ServeArguments| http.serve(stream, context));
        let call =
            future_size(|(routes, peer, request): HandleArguments| routes.handle(peer, request));
        let stream = future_size(next_items);
        let turn = turn_future_size();
        let bounds = [
            ("connection", connection, 1_300),
            ("call", call, 2_300),
            ("stream", stream, 832),
            ("turn", turn, 1_400),
        ];
        for (name, bytes, max_bytes) in bounds {
            assert!(bytes <= max_bytes, "{name}: {bytes} bytes");
        }
    }
}
