//! One connection to the admin interface, and the authentication of operators.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::AdminRoutes;
use super::api::{self, ApiError};
use super::connection_deadline::ConnectionDeadline;
use super::console_files::add_common_headers;
use super::host_policy::HostPolicy;
use super::operator::Operator;
use super::operator_access::{OperatorAccess, OperatorLogin};
use crate::auth::RequestCredentials;
use crate::rt::ConnectionPermit;
use crate::server::connections::refuse_head;
use crate::server::http1_head::check_http1_head;
use crate::server::reply::{self, Reply, ReplyBody, text};
use crate::server::transport::ByteStream;

/// Maximum number of concurrent HTTP/2 streams of a connection.
const MAX_STREAMS: u32 = 32;
/// Header of the CSRF token.
const SESSION_HEADER: &str = "attache-session";

/// TCP connection of an operator, who authenticates with a key or a session.
#[derive(Clone)]
pub(super) struct OperatorConnection {
    pub(super) routes: Arc<AdminRoutes>,
    pub(super) access: Arc<OperatorAccess>,
    pub(super) hosts: Arc<HostPolicy>,
    pub(super) peer: SocketAddr,
    pub(super) permit: Arc<ConnectionPermit>,
}

/// Result of the authentication of a request.
enum Authentication {
    Operator(Operator),
    /// No credential, or one of a session that has ended.
    Missing,
    Invalid,
    LockedOut(crate::model::Error),
}

impl OperatorConnection {
    /// Handles a request. Replies are not cached, and links in them send no referrer.
    pub(super) async fn handle(
        &self,
        request: Request<Incoming>,
        deadline: ConnectionDeadline,
    ) -> Reply {
        let mut reply = match self.hosts.check(&request) {
            Ok(()) => self.authenticate_and_handle(request, deadline).await,
            Err(foreign) => {
                tracing::info!(peer = %self.peer.ip(), reason = ?foreign, "foreign request refused");
                ApiError::foreign(foreign.message()).into_reply()
            }
        };
        let headers = reply.headers_mut();
        let is_cacheable = headers.contains_key(CACHE_CONTROL);
        if !is_cacheable {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        add_common_headers(headers);
        reply
    }

    /// Handles a request of an operator. `/healthz`, the files of the console and sign-in need none, but an invalid key is
    /// refused.
    async fn authenticate_and_handle(
        &self,
        request: Request<Incoming>,
        deadline: ConnectionDeadline,
    ) -> Reply {
        let ip = self.peer.ip();
        let is_api = request.uri().path().starts_with(api::PREFIX);
        match self.authenticate(&request).await {
            Authentication::Operator(operator) => {
                self.permit.protect();
                deadline.extend();
                self.routes.handle(request, Some(operator), Some(ip)).await
            }
            Authentication::Missing if is_api || self.routes.is_public(request.uri().path()) => {
                self.routes.handle(request, None, Some(ip)).await
            }
            Authentication::Invalid if is_api => ApiError::invalid_key().into_reply(),
            Authentication::LockedOut(error) if is_api => ApiError::locked_out(&error).into_reply(),
            Authentication::Missing | Authentication::Invalid => {
                tracing::info!(peer = %ip, "operator not authenticated");
                let mut reply = text(StatusCode::UNAUTHORIZED, "an operator key is required\n");
                let challenge = HeaderValue::from_static("Bearer realm=\"attache admin\"");
                reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                reply
            }
            Authentication::LockedOut(error) => {
                let message = format!("{}\n", error.message());
                let mut reply = text(StatusCode::TOO_MANY_REQUESTS, message);
                reply::set_retry_after(&mut reply, &error);
                reply
            }
        }
    }

    /// Authenticates by key, or else by session. A key makes the cookie irrelevant.
    async fn authenticate(&self, request: &Request<Incoming>) -> Authentication {
        let headers = request.headers();
        let has_key = headers.contains_key(AUTHORIZATION) || headers.contains_key("x-api-key");
        if !has_key && let Some(operator) = self.find_session(headers) {
            return Authentication::Operator(operator);
        }
        let ip = self.peer.ip();
        let credentials = RequestCredentials::new(headers, request.uri().query(), ip, None);
        match self.access.authenticate(&credentials).await {
            OperatorLogin::Authenticated(operator) => Authentication::Operator(operator),
            OperatorLogin::Missing => Authentication::Missing,
            OperatorLogin::Invalid => Authentication::Invalid,
            OperatorLogin::LockedOut(error) => Authentication::LockedOut(error),
        }
    }

    fn find_session(&self, headers: &HeaderMap) -> Option<Operator> {
        let csrf_token = headers.get(SESSION_HEADER)?.to_str().ok()?;
        let lines = headers.get_all(COOKIE).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let state = self.routes.state();
        let cookie = state.read_cookie(lines)?;
        state.sessions.find(cookie, csrf_token)
    }
}

/// Serves a connection until its deadline. Protocol errors end it.
pub(super) async fn serve_connection<F>(
    stream: impl ByteStream + 'static,
    tasks: &TaskTracker,
    deadline: ConnectionDeadline,
    handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Reply> + Send + 'static,
{
    let stream_deadline = deadline.clone();
    let service = service_fn(move |request| {
        let reply = match check_http1_head(&request) {
            Ok(()) => Ok(handler(request)),
            Err(error) => Err(refuse_head(error)),
        };
        let deadline = stream_deadline.clone();
        async move {
            Ok::<_, Infallible>(match reply {
                Ok(reply) => reply.await.map(|body| match body {
                    ReplyBody::Stream(frames) => ReplyBody::Stream(deadline.extend_by(frames)),
                    body @ (ReplyBody::Full(_) | ReplyBody::Pieces(_)) => body,
                }),
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
    tokio::select! {
        _ = connection => {}
        () = deadline.passed() => {}
    }
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
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn d21_ambiguous_heads_are_refused() {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        near.write_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            .await
            .unwrap();
        let tasks = TaskTracker::new();
        serve_connection(far, &tasks, ConnectionDeadline::new(), |_| async {
            text(StatusCode::OK, "handled")
        })
        .await;
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
        let serving = serve_connection(far, &server_tasks, ConnectionDeadline::new(), |_| {
            std::future::pending()
        });
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
