//! HTTP server of the documentation, on loopback only.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::site::{SiteFile, media_type};

/// Maximum number of concurrent connections. Browsers open six to a server.
const MAX_CONNECTIONS: usize = 64;
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Files of the site by path.
type Files = HashMap<String, SiteFile>;

/// Serves the files until the future is dropped.
///
/// # Errors
/// The listener fails.
pub(crate) async fn serve(listener: TcpListener, files: Vec<SiteFile>) -> io::Result<()> {
    let files: Arc<Files> = Arc::new(
        files
            .into_iter()
            .map(|file| (file.path.clone(), file))
            .collect(),
    );
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let tasks = TaskTracker::new();
    loop {
        let permit = permits
            .clone()
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        let connection = serve_connection(stream, files.clone());
        tasks.spawn(async move {
            connection.await;
            drop(permit);
        });
    }
}

async fn serve_connection(stream: TcpStream, files: Arc<Files>) {
    let handler = service_fn(move |request| {
        let response = respond(&files, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), handler);
    // The browser observes a broken connection itself.
    let _ = connection.await;
}

fn respond(files: &Files, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !is_local_host(request) {
        return text_response(StatusCode::MISDIRECTED_REQUEST, "unknown host");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "use GET");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let path = request.uri().path().trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    match files.get(path) {
        Some(file) => {
            let mut response = Response::new(Full::new(Bytes::from(file.content.clone())));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
            headers.insert(CONTENT_SECURITY_POLICY, POLICY);
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            response
        }
        None => text_response(StatusCode::NOT_FOUND, "there is no such page"),
    }
}

/// Whether `Host` names this machine (DNS rebinding).
fn is_local_host(request: &Request<Incoming>) -> bool {
    let host = request
        .headers()
        .get(HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<http::uri::Authority>().ok());
    host.is_some_and(|host| matches!(host.host(), "localhost" | "127.0.0.1" | "[::1]"))
}

fn text_response(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
