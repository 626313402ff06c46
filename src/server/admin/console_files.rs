//! Files of the web console, with their headers.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, StatusCode};
use sha2::{Digest, Sha256};

use crate::server::reply::{self, Reply, full, method_not_allowed, text};

/// Folder of the console.
const CONSOLE_PATH: &str = "/console/";

/// No script, style or connection but our own, and no way to turn text into code (S54).
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; \
     frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);
const PERMISSIONS: HeaderValue = HeaderValue::from_static(
    "accelerometer=(), camera=(), clipboard-write=(self), display-capture=(), geolocation=(), gyroscope=(), \
     hid=(), magnetometer=(), microphone=(), midi=(), payment=(), serial=(), usb=()",
);

/// Files of a web console. The `attache` program has them built in.
pub trait ConsoleFiles: Send + Sync + 'static {
    /// Returns the file at a path below `/console/`, such as `app/main.js`; `index.html` for the console itself.
    fn file(&self, path: &str) -> Option<ConsoleFile>;
}

/// File of the web console.
#[derive(Debug, Clone)]
pub struct ConsoleFile {
    /// Media type, such as `text/javascript`.
    pub media_type: &'static str,
    /// Content.
    pub content: Bytes,
}

/// Whether a path of the listener belongs to the console.
pub(super) fn is_file(path: &str) -> bool {
    path == "/" || path == "/console" || path.starts_with(CONSOLE_PATH)
}

/// Returns the file that a request names.
pub(super) fn serve<B>(files: &dyn ConsoleFiles, request: &Request<B>) -> Reply {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return method_not_allowed("GET");
    }
    let Some(name) = request.uri().path().strip_prefix(CONSOLE_PATH) else {
        return redirect();
    };
    let name = if name.is_empty() { "index.html" } else { name };
    let mut reply = match files.file(name) {
        Some(file) => file_reply(file, request.headers()),
        None => text(StatusCode::NOT_FOUND, "the console has no such file\n"),
    };
    let headers = reply.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(HeaderName::from_static("permissions-policy"), PERMISSIONS);
    add_common_headers(headers);
    reply
}

/// Adds the headers of all replies of the admin interface.
pub(super) fn add_common_headers(headers: &mut HeaderMap) {
    const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        headers.insert(HeaderName::from_static(name), SAME_ORIGIN);
    }
}

/// Redirects to the console with a relative address, so that it works below the prefix of a proxy.
fn redirect() -> Reply {
    let mut reply = reply::empty(StatusCode::FOUND);
    let location = HeaderValue::from_static("console/");
    reply.headers_mut().insert(LOCATION, location);
    add_common_headers(reply.headers_mut());
    reply
}

/// The browser keeps files and asks whether they have changed.
fn file_reply(file: ConsoleFile, headers: &HeaderMap) -> Reply {
    let tag = etag(&file.content);
    let is_current = headers
        .get(IF_NONE_MATCH)
        .is_some_and(|known| *known == tag);
    let mut reply = if is_current {
        reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        full(StatusCode::OK, file.media_type, file.content)
    };
    let headers = reply.headers_mut();
    headers.insert(ETAG, tag);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply
}

fn etag(content: &[u8]) -> HeaderValue {
    let digest = Sha256::digest(content);
    let hex: String = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    HeaderValue::try_from(format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}
