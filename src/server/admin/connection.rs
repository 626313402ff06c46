//! One connection to the admin interface, and the authentication of operators.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, REFERRER_POLICY, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::AdminRoutes;
use super::operator_access::{OperatorAccess, OperatorLogin};
use crate::auth::RequestCredentials;
use crate::rt::ConnectionPermit;
use crate::server::connections::refuse_head;
use crate::server::http1_head::check_http1_head;
use crate::server::reply::{self, Reply, text};
use crate::server::transport::ByteStream;

/// Maximum duration of a connection.
pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent HTTP/2 streams of a connection.
const MAX_STREAMS: u32 = 8;

/// TCP connection of an operator, who authenticates with a key.
#[derive(Clone)]
pub(super) struct OperatorSession {
    pub(super) routes: Arc<AdminRoutes>,
    pub(super) access: Arc<OperatorAccess>,
    pub(super) peer: SocketAddr,
    pub(super) permit: Arc<ConnectionPermit>,
}

impl OperatorSession {
    /// Handles a request. Replies are not cached, and links in them send no referrer.
    pub(super) async fn handle(&self, request: Request<Incoming>) -> Reply {
        let mut reply = self.authenticate_and_handle(request).await;
        let headers = reply.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        reply
    }

    /// Handles a request with a valid key. `/healthz` needs no key, but an invalid one is refused.
    async fn authenticate_and_handle(&self, request: Request<Incoming>) -> Reply {
        let ip = self.peer.ip();
        let credentials =
            RequestCredentials::new(request.headers(), request.uri().query(), ip, None);
        let is_public = request.uri().path() == "/healthz";
        match self.access.authenticate(&credentials).await {
            OperatorLogin::Authenticated => {
                self.permit.protect();
                self.routes.handle(&request).await
            }
            OperatorLogin::Missing if is_public => self.routes.handle(&request).await,
            OperatorLogin::Missing | OperatorLogin::Invalid => {
                tracing::info!(peer = %ip, "operator not authenticated");
                let mut reply = text(StatusCode::UNAUTHORIZED, "an operator key is required\n");
                let challenge = HeaderValue::from_static("Bearer realm=\"attache admin\"");
                reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                reply
            }
            OperatorLogin::LockedOut(error) => {
                let message = format!("{}\n", error.message());
                let mut reply = text(StatusCode::TOO_MANY_REQUESTS, message);
                reply::set_retry_after(&mut reply, &error);
                reply
            }
        }
    }
}

/// Serves a connection for at most [`CONNECTION_TIMEOUT`]. Protocol errors end it.
pub(super) async fn serve_connection<F>(
    stream: impl ByteStream + 'static,
    tasks: &TaskTracker,
    handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Reply> + Send + 'static,
{
    let service = service_fn(move |request| {
        let reply = match check_http1_head(&request) {
            Ok(()) => Ok(handler(request)),
            Err(error) => Err(refuse_head(error)),
        };
        async {
            Ok::<_, Infallible>(match reply {
                Ok(reply) => reply.await,
                Err(refusal) => refusal,
            })
        }
    });
    let close = CancellationToken::new();
    // HTTP/2 streams end with their connection.
    let _guard = close.clone().drop_guard();
    let mut http = auto::Builder::new(AdminExecutor {
        tasks: tasks.clone(),
        close,
    });
    http.http1().timer(TokioTimer::new());
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
}

/// Executor of the HTTP/2 streams of one connection.
#[derive(Clone)]
struct AdminExecutor {
    tasks: TaskTracker,
    close: CancellationToken,
}

impl<F> Executor<F> for AdminExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks
            .spawn(self.close.clone().run_until_cancelled_owned(future));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper::client::conn::http2;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn d21_ambiguous_heads_are_refused() {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        near.write_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let tasks = TaskTracker::new();
        serve_connection(far, &tasks, |_| async { text(StatusCode::OK, "handled") }).await;
        let mut reply = String::new();
        near.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
    }

    /// An HTTP/2 call without a reply ends when its connection is dropped.
    #[tokio::test(start_paused = true)]
    async fn open_streams_end_with_their_connection() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let server_tasks = TaskTracker::new();
        let client_tasks = TaskTracker::new();
        let serving = serve_connection(far, &server_tasks, |_| std::future::pending());
        let executor = AdminExecutor {
            tasks: client_tasks.clone(),
            close: CancellationToken::new(),
        };
        let mut pending = None;
        let calling = async {
            let (mut sender, connection) = http2::handshake(executor, TokioIo::new(near))
                .await
                .unwrap();
            client_tasks.spawn(async { drop(connection.await) });
            let request = Request::get("http://admin/metrics")
                .body(Empty::<Bytes>::new())
                .unwrap();
            pending = Some(client_tasks.spawn(sender.send_request(request)));
            // Waits until the stream has its own task.
            while server_tasks.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = serving => panic!("the call has no reply"),
            () = calling => {}
        }
        server_tasks.close();
        timeout(Duration::from_millis(1), server_tasks.wait())
            .await
            .expect("no stream outlives the connection");
        assert!(pending.unwrap().await.unwrap().is_err());
    }
}
