//! Streamable HTTP transport of the MCP server, protected by a bearer key.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use ::http::{Request, Response, StatusCode};
use attache::model::Secret;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::McpServer;

/// Maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 256;
/// Maximum size of a request.
const MAX_REQUEST_BYTES: usize = 8 << 20;
/// Delay after a failed accept, for example if too many files are open.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Path of the MCP endpoint.
const MCP_PATH: &str = "/mcp";

type McpService = StreamableHttpService<McpServer, LocalSessionManager>;
type McpResponse = Response<BoxBody<Bytes, Infallible>>;

impl McpServer {
    /// Serves clients at `/mcp` over streamable HTTP, until `stop` is canceled.
    ///
    /// With a key, requests must present it as a bearer token. Requests with a foreign `Origin`, and requests whose `Host` is
    /// neither a loopback name nor in `hosts`, are refused (DNS rebinding).
    pub async fn serve_http(
        self,
        listener: TcpListener,
        key: Option<Secret>,
        hosts: Vec<String>,
        stop: CancellationToken,
    ) {
        let mut config = StreamableHttpServerConfig::default().enforce_origin_validation();
        config.allowed_hosts.extend(hosts);
        config.cancellation_token = stop.child_token();
        config.max_request_body_bytes = MAX_REQUEST_BYTES;
        let service = StreamableHttpService::new(move || Ok(self.clone()), Arc::default(), config);
        let key = Arc::new(key);
        let tasks = TaskTracker::new();
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut has_logged_error = false;
        while let Some(Ok(permit)) = stop
            .run_until_cancelled(permits.clone().acquire_owned())
            .await
        {
            let stream = match stop.run_until_cancelled(listener.accept()).await {
                Some(Ok((stream, _))) => stream,
                Some(Err(error)) => {
                    if !std::mem::replace(&mut has_logged_error, true) {
                        tracing::error!(%error, "cannot accept connections");
                    }
                    stop.run_until_cancelled(sleep(ACCEPT_RETRY_DELAY)).await;
                    continue;
                }
                None => return,
            };
            has_logged_error = false;
            let connection = serve_connection(stream, service.clone(), key.clone());
            tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
                connection.await;
                drop(permit);
            }));
        }
    }
}

/// Serves the requests of one connection.
async fn serve_connection(stream: TcpStream, service: McpService, key: Arc<Option<Secret>>) {
    let handler = service_fn(move |request| handle_request(service.clone(), key.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), handler);
    // The client observes a broken connection itself.
    let _ = connection.await;
}

/// Authorizes a request and passes it to the MCP service.
async fn handle_request(
    mut service: McpService,
    key: Arc<Option<Secret>>,
    request: Request<Incoming>,
) -> Result<McpResponse, Infallible> {
    if !is_authorized(key.as_ref().as_ref(), &request) {
        let mut response = empty_response(StatusCode::UNAUTHORIZED);
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, ::http::HeaderValue::from_static("Bearer"));
        return Ok(response);
    }
    if request.uri().path().trim_end_matches('/') != MCP_PATH {
        return Ok(empty_response(StatusCode::NOT_FOUND));
    }
    tower_service::Service::call(&mut service, request).await
}

/// Returns whether the request has the key, compared in constant time.
fn is_authorized(key: Option<&Secret>, request: &Request<Incoming>) -> bool {
    let Some(key) = key else { return true };
    let token = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|token| token.as_bytes().strip_prefix(b"Bearer "));
    token.is_some_and(|token| token.ct_eq(key.expose().as_bytes()).into())
}

fn empty_response(status: StatusCode) -> McpResponse {
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    *response.status_mut() = status;
    response
}
