//! Protocol headers of a call: version, extensions, idempotency key, trace context and stream
//! position.

use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::model::{
    self, Call, Caller, ClientAddress, ClientDialect, Error, INPUT_REQUEST, Result, Seq,
    TraceContext, Version,
};
use crate::service::CallMetadata;
use crate::telemetry::trace;
use crate::wire::negotiation::RequestedVersion;
use crate::wire::{Dialect, file_encoding, header};

/// Names of the extension header: that of version 1.0 first, then that of 0.3.
const EXTENSION_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
];
const VERSION: HeaderName = HeaderName::from_static(header::VERSION);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static(header::LAST_EVENT_ID);
const TRACE_PARENT: HeaderName = HeaderName::from_static(TraceContext::PARENT);
/// Maximum number of `tracestate` lines that are read.
const MAX_TRACE_STATE_LINES: usize = 32;
/// Maximum number of extensions that are read from one request.
const MAX_EXTENSIONS: usize = 64;

/// Returns the version that the `A2A-Version` headers and query parameters request. A value that is
/// not text counts as an unsupported version.
pub(super) fn requested_version(headers: &HeaderMap, query: Option<&str>) -> RequestedVersion {
    let in_headers = headers
        .get_all(VERSION)
        .iter()
        .map(|value| value.to_str().unwrap_or("?"));
    let Some(query) = query else {
        return RequestedVersion::parse(in_headers);
    };
    let query = form_urlencoded::parse(query.as_bytes());
    let in_query: Vec<_> = query
        .filter(|(name, _)| name.eq_ignore_ascii_case(VERSION.as_str()))
        .map(|(_, value)| value)
        .collect();
    RequestedVersion::parse(in_headers.chain(in_query.iter().map(|value| &**value)))
}

/// Returns the version for the error reply to a request that could not be decoded.
pub(super) fn error_version(requested: &RequestedVersion) -> Version {
    match requested {
        RequestedVersion::Known(version) => *version,
        RequestedVersion::Absent | RequestedVersion::Unsupported(_) => Version::V03,
    }
}

/// Whether the caller puts base64 text into the bytes of files.
pub(super) fn has_base64_files(headers: &HeaderMap, version: Version) -> bool {
    let user_agent = single_value(headers, &USER_AGENT);
    file_encoding::has_base64_files(user_agent, version)
}

/// Drops headers and URI of a decoded request.
///
/// hyper reads an HTTP/1 request into one buffer and frees it when no part is referenced. A call
/// can run for hours.
pub(super) fn release_head(head: &mut Parts) {
    head.headers = HeaderMap::new();
    head.uri = Uri::default();
}

/// Reads the trace context of the headers. Several `tracestate` lines are joined (W3C Trace
/// Context).
pub(super) fn read_trace(headers: &HeaderMap) -> Option<TraceContext> {
    let parent = single_value(headers, &TRACE_PARENT)?;
    let mut lines = headers
        .get_all(TraceContext::STATE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    let Some(first) = lines.next() else {
        return TraceContext::parse(parent, None);
    };
    let Some(second) = lines.next() else {
        return TraceContext::parse(parent, Some(first));
    };
    let state: Vec<_> = [first, second]
        .into_iter()
        .chain(lines)
        .take(MAX_TRACE_STATE_LINES)
        .collect();
    TraceContext::parse(parent, Some(&state.join(",")))
}

/// Reads the metadata of a call from its headers.
///
/// # Errors
/// Invalid `Idempotency-Key`: given twice with different values, or not UTF-8.
pub(super) fn read_call_headers(
    caller: Caller,
    client: ClientAddress,
    headers: &HeaderMap,
    version: Version,
) -> Result<CallMetadata> {
    if !has_call_headers(headers) {
        return Ok(CallMetadata {
            caller,
            idempotency_key: None,
            extensions: Vec::new(),
            trace: trace::current(),
            version,
            resume_after: None,
            client: Some(client),
        });
    }
    Ok(CallMetadata {
        caller,
        idempotency_key: idempotency_key(headers)?,
        extensions: extensions(headers).map(str::to_owned).collect(),
        trace: trace::current().or_else(|| read_trace(headers)),
        version,
        resume_after: single_value(headers, &LAST_EVENT_ID)
            .and_then(|text| text.parse().ok())
            .map(Seq),
        client: Some(client),
    })
}

/// Whether a request has any of the headers that [`read_call_headers`] reads.
///
/// Most requests have none. One pass over all names is cheaper than a lookup of each.
fn has_call_headers(headers: &HeaderMap) -> bool {
    let is_call_header = |name| {
        EXTENSION_HEADERS.contains(name)
            || [IDEMPOTENCY_KEY, TRACE_PARENT, LAST_EVENT_ID].contains(name)
    };
    headers.keys().any(is_call_header)
}

/// Returns the value of a header that occurs exactly once.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Returns the idempotency key of a request.
///
/// # Errors
/// Invalid: given twice with different values, or not UTF-8.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if values.any(|other| other != first) {
        return Err(Error::invalid(NAME, "must be given only once"));
    }
    let text =
        std::str::from_utf8(first.as_bytes()).map_err(|_| Error::invalid(NAME, "must be UTF-8"))?;
    Ok(Some(text.to_owned()))
}

/// Returns the extensions that a request names, under either header name.
fn extensions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = EXTENSION_HEADERS
        .into_iter()
        .flat_map(|name| headers.get_all(name));
    let items = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    items
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .take(MAX_EXTENSIONS)
}

/// Extension header names that a request uses, in the order of [`EXTENSION_HEADERS`]. The reply
/// uses the same.
#[derive(Clone, Copy, Default)]
pub(super) struct ExtensionHeaders([bool; 2]);

impl ExtensionHeaders {
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        Self(EXTENSION_HEADERS.map(|name| headers.contains_key(name)))
    }
}

/// Returns the dialect of the reply.
///
/// A 0.3 client that runs tools for the agent gets tool parts. It declares that with the extension,
/// or by sending tool parts (09, 2.10).
pub(super) fn response_dialect(
    headers: &HeaderMap,
    request: &mut model::Request,
    decoded: Dialect,
) -> Dialect {
    if decoded != Dialect::V03 {
        return decoded;
    }
    let is_active = extensions(headers).any(|uri| uri == INPUT_REQUEST);
    let declared = is_active.then_some(ClientDialect::Tools);
    let client = match request {
        model::Request::SendMessage(request) | model::Request::SendStreamingMessage(request) => {
            // Recorded with the message, so that webhooks of the task have tool parts too.
            request.dialect = request.dialect.or(declared);
            request.dialect
        }
        _ => declared,
    };
    decoded.with_client_dialect(client)
}

/// Sets the `A2A-Version` header of a reply.
pub(super) fn set_version_header(headers: &mut HeaderMap, version: Version) {
    headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
}

/// Sets the version header, and the active extensions under the header names that the request used.
pub(super) fn set_call_headers(headers: &mut HeaderMap, requested: ExtensionHeaders, call: &Call) {
    set_version_header(headers, call.version);
    if call.extensions.is_empty() {
        return;
    }
    let Ok(active) = HeaderValue::from_str(&call.extensions.join(", ")) else {
        return;
    };
    for (name, is_requested) in EXTENSION_HEADERS.into_iter().zip(requested.0) {
        if is_requested {
            headers.insert(name, active.clone());
        }
    }
}
