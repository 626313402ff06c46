//! What a request says beside its body: which version, which extensions, which trace.

use std::pin::Pin;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use hyper::body::Incoming;
use tracing::{Instrument, Span};

use crate::model::{
    self, Binding, Call, Caller, Error, INPUT_REQUEST, Operation, Result, Seq, TraceContext,
    Version,
};
use crate::service::CallMetadata;
use crate::telemetry::trace;
use crate::wire::negotiation::RequestedVersion;
use crate::wire::{Dialect, has_tool_parts};

/// 1.0's name first, then 0.3's.
const EXTENSION_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
];
const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static(TraceContext::PARENT);
/// How many lines of vendors' state are looked at.
const MAX_TRACE_STATE_LINES: usize = 32;
/// How many extensions one request may name; nobody knows more.
const MAX_EXTENSIONS: usize = 64;

/// The version that the header and the query ask for; one that cannot be read is one that we do not speak.
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

/// In which version to answer what is no call.
pub(super) fn error_version(requested: &RequestedVersion) -> Version {
    match requested {
        RequestedVersion::Known(version) => *version,
        RequestedVersion::Absent | RequestedVersion::Unsupported(_) => Version::V03,
    }
}

/// Whether a request is a call of gRPC, whatever it calls. gRPC-Web is another protocol.
pub(super) fn is_grpc(request: &Request<Incoming>) -> bool {
    if request.version() != http::Version::HTTP_2 || *request.method() != Method::POST {
        return false;
    }
    let media_type = request
        .headers()
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let essence = media_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    essence.eq_ignore_ascii_case(b"application/grpc")
        || essence.eq_ignore_ascii_case(b"application/grpc+proto")
}

/// What is said of every call: in the log, and in a span of the trace that its headers name.
pub(super) struct CallSpan {
    operation: Operation,
    binding: Binding,
    version: Version,
    span: Span,
}

impl CallSpan {
    pub(super) fn new(
        operation: Operation,
        binding: Binding,
        version: Version,
        headers: &HeaderMap,
    ) -> Self {
        let span = trace::call_span(operation, binding, version, || read_trace(headers));
        Self {
            operation,
            binding,
            version,
            span,
        }
    }

    /// Serves the call, and says how that ended. It stays where it is, since it is large.
    pub(super) async fn instrument<T>(
        self,
        caller: &Caller,
        handled: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<T> {
        let Self {
            operation,
            binding,
            version,
            span,
        } = self;
        let (binding, version, caller) = (binding.as_str(), version.as_str(), caller.name());
        let log_span = tracing::info_span!("call", method = ?operation, binding, version, caller);
        let result = handled.instrument(span.clone()).instrument(log_span).await;
        if let Err(error) = &result {
            trace::record_failure(&span, error.kind());
        }
        result
    }
}

/// Lets go of what a request said beside its body, once that is read: the call may take long. HTTP/1 reads all of a request into
/// one buffer, which stays as long as anything points into it.
pub(super) fn release_head(head: &mut Parts) {
    (head.headers, head.uri) = (HeaderMap::new(), Uri::default());
}

/// The trace that the headers name. Several lines of a state are one.
fn read_trace(headers: &HeaderMap) -> Option<TraceContext> {
    let parent = single_value(headers, &TRACE_PARENT)?;
    let mut state = headers
        .get_all(TraceContext::STATE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    match (state.next(), state.next()) {
        (one, None) => TraceContext::parse(parent, one),
        (Some(first), Some(second)) => {
            let all: Vec<_> = [first, second]
                .into_iter()
                .chain(state)
                .take(MAX_TRACE_STATE_LINES)
                .collect();
            TraceContext::parse(parent, Some(&all.join(",")))
        }
        (None, Some(_)) => None,
    }
}

/// What the headers say of the request.
///
/// # Errors
/// Invalid: there are two idempotency keys, or one that is no text.
pub(super) fn read_call_headers(
    caller: Caller,
    headers: &HeaderMap,
    version: Version,
) -> Result<CallMetadata> {
    if has_no_call_headers(headers) {
        let (idempotency_key, extensions, resume_after) = (None, Vec::new(), None);
        let trace = trace::current();
        return Ok(CallMetadata {
            caller,
            idempotency_key,
            extensions,
            trace,
            version,
            resume_after,
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
    })
}

/// Whether a request has none of the headers that [`read_call_headers`] reads, as most have none. One look at all names takes less than
/// a search for each.
fn has_no_call_headers(headers: &HeaderMap) -> bool {
    let is_call_header = |name| {
        EXTENSION_HEADERS.contains(name)
            || [IDEMPOTENCY_KEY, TRACE_PARENT, LAST_EVENT_ID].contains(name)
    };
    !headers.keys().any(is_call_header)
}

/// What is given more than once is not chosen from.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// What makes a request the same when it comes again, if its caller says so.
///
/// # Errors
/// Invalid: there are two, or one that is no text.
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

/// The extensions that a request asks for, under either name.
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

/// Under which of its names a request asks for extensions.
#[derive(Clone, Copy, Default)]
pub(super) struct ExtensionHeaders([bool; 2]);

impl ExtensionHeaders {
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        Self(EXTENSION_HEADERS.map(|name| headers.contains_key(name)))
    }
}

/// How to write to whoever asks: those who run tools for an agent say so by its extension, or by what they send (09 2.8).
pub(super) fn response_dialect(
    headers: &HeaderMap,
    request: &model::Request,
    read: Dialect,
) -> Dialect {
    let runs_tools =
        || extensions(headers).any(|uri| uri == INPUT_REQUEST) || has_tool_parts(request);
    if read == Dialect::V03 && runs_tools() {
        read.with_tools()
    } else {
        read
    }
}

/// Says in the answer which version it is in.
pub(super) fn set_version_header(headers: &mut HeaderMap, version: Version) {
    headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
}

/// Says in the answer which version it is in, and which extensions are active, under the names that were asked with.
pub(super) fn set_call_headers(headers: &mut HeaderMap, requested: ExtensionHeaders, call: &Call) {
    set_version_header(headers, call.version);
    if call.extensions.is_empty() {
        return;
    }
    let Ok(active) = HeaderValue::from_str(&call.extensions.join(", ")) else {
        return;
    };
    for (name, _) in EXTENSION_HEADERS
        .into_iter()
        .zip(requested.0)
        .filter(|(_, is_requested)| *is_requested)
    {
        headers.insert(name, active.clone());
    }
}
