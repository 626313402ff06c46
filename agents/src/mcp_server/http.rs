//! Streamable HTTP transport of the MCP server: connections, keys, and limits.
//!
//! Connections beyond the limits are served too. The oldest of them that has not sent a key is closed for a new one, so
//! slow clients without a key do not lock out its owner (D15).

mod access;
mod body;
mod sessions;
mod settings;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use ::http::{HeaderValue, Request, Response, StatusCode};
use attache::model::CallerKey;
use attache::{
    AcceptedConnection, ConnectionPermit, LimitedListener, WriteTimeout, check_http1_head,
};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::McpServer;
use access::{ClientKeys, KeyConnection};
use body::{BodyBudget, HeldBody};
use sessions::McpSessions;
pub use settings::McpHttpSettings;

/// Maximum size of a request.
const MAX_REQUEST_BYTES: usize = 8 << 20;
/// `Retry-After` of a request that exceeds a limit, in seconds.
const RETRY_AFTER_SECONDS: u64 = 5;
/// Path of the MCP endpoint.
const MCP_PATH: &str = "/mcp";

type McpResponse = Response<BoxBody<Bytes, Infallible>>;

/// State of all connections.
struct McpEndpoint {
    server: McpServer,
    transport: StreamableHttpServerConfig,
    keys: ClientKeys,
    bodies: BodyBudget,
    sessions: Arc<McpSessions>,
    header_timeout: Duration,
    write_timeout: Duration,
    max_connections_per_caller: usize,
}

/// One connection of a client.
struct McpConnection {
    endpoint: Arc<McpEndpoint>,
    peer: SocketAddr,
    permit: ConnectionPermit,
    key: KeyConnection,
}

impl McpServer {
    /// Serves clients at `/mcp` over streamable HTTP, until `stop` is canceled.
    ///
    /// If there are keys, requests must present one as a bearer token. Requests with a foreign `Origin`, and requests whose
    /// `Host` is neither a loopback name nor one of the settings, are refused (DNS rebinding).
    pub async fn serve_http(
        self,
        listener: TcpListener,
        settings: McpHttpSettings,
        stop: CancellationToken,
    ) {
        let mut listener = LimitedListener::new(listener, settings.connection_limits());
        let endpoint = Arc::new(McpEndpoint::new(self, settings, &stop));
        let tasks = TaskTracker::new();
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            let connection = endpoint.clone().serve_connection(accepted);
            tasks.spawn(stop.clone().run_until_cancelled_owned(connection));
        }
    }
}

impl McpEndpoint {
    fn new(server: McpServer, settings: McpHttpSettings, stop: &CancellationToken) -> Self {
        let mut transport = StreamableHttpServerConfig::default().enforce_origin_validation();
        transport.cancellation_token = stop.child_token();
        transport.max_request_body_bytes = MAX_REQUEST_BYTES;
        let max_connections_per_caller = settings.connections_per_caller();
        let sessions = McpSessions::new(&settings);
        transport.allowed_hosts.extend(settings.hosts);
        Self {
            server,
            transport,
            keys: ClientKeys::new(settings.keys, max_connections_per_caller),
            bodies: BodyBudget::new(settings.max_buffered_body_bytes, settings.body_timeout),
            sessions,
            header_timeout: settings.header_timeout,
            write_timeout: settings.write_timeout,
            max_connections_per_caller,
        }
    }

    /// Serves the requests of one connection until it ends, or until it is closed for a newer one.
    async fn serve_connection(
        self: Arc<Self>,
        accepted: AcceptedConnection<TcpStream, SocketAddr>,
    ) {
        let eviction = accepted.permit.eviction();
        let header_timeout = self.header_timeout;
        let stream = WriteTimeout::new(accepted.stream, self.write_timeout);
        let connection = Arc::new(McpConnection {
            endpoint: self,
            peer: accepted.peer,
            permit: accepted.permit,
            key: KeyConnection::default(),
        });
        let handler = service_fn(move |request| {
            let connection = connection.clone();
            async move { Ok::<_, Infallible>(connection.handle(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .serve_connection(TokioIo::new(stream), handler);
        // The client observes a broken connection itself.
        let _ = match eviction {
            Some(eviction) => eviction.run_until_cancelled(connection).await,
            None => Some(connection.await),
        };
    }

    /// Passes an authenticated request to the MCP service.
    async fn call(&self, caller: CallerKey, request: Request<Incoming>) -> McpResponse {
        let (head, body) = request.into_parts();
        let (body, permits) = match self.bodies.read(body, &caller).await {
            Ok(read) => read,
            Err(error) => return refuse(error.status(), error.message().to_owned()),
        };
        let server = self.server.clone();
        let sessions = self.sessions.for_request(caller);
        let mut service = StreamableHttpService::new(
            move || Ok(server.clone()),
            sessions.clone(),
            self.transport.clone(),
        );
        let request = Request::from_parts(head, Full::new(body));
        let Ok(response) = tower_service::Service::call(&mut service, request).await;
        match sessions.refusal() {
            Some(message) => refuse(StatusCode::SERVICE_UNAVAILABLE, message.to_owned()),
            None => response.map(|body| HeldBody { body, permits }.boxed()),
        }
    }
}

impl McpConnection {
    /// Authenticates a request, counts its connection, and calls the MCP service.
    async fn handle(&self, request: Request<Incoming>) -> McpResponse {
        if let Err(error) = check_http1_head(&request) {
            return close_after(text_response(error.status(), error.message().to_owned()));
        }
        let endpoint = &self.endpoint;
        let caller = endpoint
            .keys
            .authenticate(request.headers(), self.peer.ip());
        let Some(caller) = caller else {
            let mut response = text_response(StatusCode::UNAUTHORIZED, String::new());
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            return response;
        };
        if endpoint.keys.count_connection(&self.key, &caller).is_err() {
            let max = endpoint.max_connections_per_caller;
            let message = format!(
                "too many connections with this key (limit: max_connections_per_caller = {max})\n"
            );
            return close_after(refuse(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        if matches!(caller, CallerKey::Caller(_)) {
            self.permit.protect();
        }
        if request.uri().path().trim_end_matches('/') != MCP_PATH {
            return text_response(StatusCode::NOT_FOUND, String::new());
        }
        endpoint.call(caller, request).await
    }
}

/// Returns the response to a request that exceeds a limit.
fn refuse(status: StatusCode, message: String) -> McpResponse {
    let mut response = text_response(status, message);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = HeaderValue::from(RETRY_AFTER_SECONDS);
        response.headers_mut().insert(RETRY_AFTER, seconds);
        return response;
    }
    // The rest of the body is not read.
    close_after(response)
}

/// Makes HTTP/1 close the connection after a response.
fn close_after(mut response: McpResponse) -> McpResponse {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

fn text_response(status: StatusCode, text: String) -> McpResponse {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
    *response.status_mut() = status;
    response
}
