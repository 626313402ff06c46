//! What a request says beside its body: which version, which extensions, which trace.

use std::pin::Pin;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use hyper::body::Incoming;
use tracing::{Instrument, Span};

use crate::model::{
    self, Binding, Call, Caller, Error, INPUT_REQUEST, Operation, Result, Seq, Trace, Version,
};
use crate::service::Asking;
use crate::trace;
use crate::wire::decide::Asked;
use crate::wire::{Dialect, tells_of_tools};

/// 1.0's name first, then 0.3's.
const EXTENSIONS: [HeaderName; 2] = [
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
];
const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static(Trace::PARENT);
/// How many lines of vendors' state are looked at.
const MAX_STATES: usize = 32;
/// How many extensions one request may name; nobody knows more.
const MAX_EXTENSIONS: usize = 64;

/// The version that the header and the query ask for; one that cannot be read is one that we do not speak.
pub(super) fn asked(headers: &HeaderMap, query: Option<&str>) -> Asked {
    let in_headers = headers
        .get_all(VERSION)
        .iter()
        .map(|value| value.to_str().unwrap_or("?"));
    let Some(query) = query else {
        return Asked::read(in_headers);
    };
    let query = form_urlencoded::parse(query.as_bytes());
    let in_query: Vec<_> = query
        .filter(|(name, _)| name.eq_ignore_ascii_case(VERSION.as_str()))
        .map(|(_, value)| value)
        .collect();
    Asked::read(in_headers.chain(in_query.iter().map(|value| &**value)))
}

/// In which version to answer what is no call.
pub(super) fn form(asked: &Asked) -> Version {
    match asked {
        Asked::For(version) => *version,
        Asked::Nothing | Asked::Other(_) => Version::V03,
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
pub(super) struct Told {
    operation: Operation,
    binding: Binding,
    version: Version,
    span: Span,
}

impl Told {
    pub(super) fn new(
        operation: Operation,
        binding: Binding,
        version: Version,
        headers: &HeaderMap,
    ) -> Self {
        let span = trace::call(operation, (binding, version), || trace_of(headers));
        Self {
            operation,
            binding,
            version,
            span,
        }
    }

    /// Serves the call, and says how that ended. It stays where it is, since it is large.
    pub(super) async fn of<T>(
        self,
        caller: &Caller,
        served: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<T> {
        let Self {
            operation,
            binding,
            version,
            span,
        } = self;
        let (binding, version, caller) = (binding.as_str(), version.as_str(), caller.name());
        let line = tracing::info_span!("call", method = ?operation, binding, version, caller);
        let answer = served.instrument(span.clone()).instrument(line).await;
        if let Err(error) = &answer {
            trace::failed(&span, error.kind());
        }
        answer
    }
}

/// Lets go of what a request said beside its body, once that is read: the call may take long. HTTP/1 reads all of a request into
/// one buffer, which stays as long as anything points into it.
pub(super) fn let_go(head: &mut Parts) {
    (head.headers, head.uri) = (HeaderMap::new(), Uri::default());
}

/// The trace that the headers name. Several lines of a state are one.
fn trace_of(headers: &HeaderMap) -> Option<Trace> {
    let parent = only(headers, &TRACE_PARENT)?;
    let mut state = headers
        .get_all(Trace::STATE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    match (state.next(), state.next()) {
        (one, None) => Trace::read(parent, one),
        (Some(first), Some(second)) => {
            let all: Vec<_> = [first, second]
                .into_iter()
                .chain(state)
                .take(MAX_STATES)
                .collect();
            Trace::read(parent, Some(&all.join(",")))
        }
        (None, Some(_)) => None,
    }
}

/// What the headers say of the request.
///
/// # Errors
/// Invalid: there are two idempotency keys, or one that is no text.
pub(super) fn asking(caller: Caller, headers: &HeaderMap, version: Version) -> Result<Asking> {
    if says_nothing(headers) {
        let (idempotency_key, extensions, last_seen) = (None, Vec::new(), None);
        let trace = trace::current();
        return Ok(Asking {
            caller,
            idempotency_key,
            extensions,
            trace,
            version,
            last_seen,
        });
    }
    Ok(Asking {
        caller,
        idempotency_key: idempotency_key(headers)?,
        extensions: extensions(headers).map(str::to_owned).collect(),
        trace: trace::current().or_else(|| trace_of(headers)),
        version,
        last_seen: only(headers, &LAST_EVENT_ID)
            .and_then(|text| text.parse().ok())
            .map(Seq),
    })
}

/// Whether a request has none of the headers that [`asking`] reads, as most have none. One look at all names takes less than
/// a search for each.
fn says_nothing(headers: &HeaderMap) -> bool {
    let is_read = |name| {
        EXTENSIONS.contains(name) || [IDEMPOTENCY_KEY, TRACE_PARENT, LAST_EVENT_ID].contains(name)
    };
    !headers.keys().any(is_read)
}

/// What is given more than once is not chosen from.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
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
    let lines = EXTENSIONS
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
pub(super) struct Named([bool; 2]);

impl Named {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(EXTENSIONS.map(|name| headers.contains_key(name)))
    }
}

/// How to write to whoever asks: those who run tools for an agent say so by its extension, or by what they send (09 2.8).
pub(super) fn dialect_of(headers: &HeaderMap, request: &model::Request, read: Dialect) -> Dialect {
    let runs_tools =
        || extensions(headers).any(|uri| uri == INPUT_REQUEST) || tells_of_tools(request);
    if read == Dialect::V03 && runs_tools() {
        read.with_tools()
    } else {
        read
    }
}

/// Says in the answer which version it is in.
pub(super) fn say_version(answer: &mut HeaderMap, version: Version) {
    answer.insert(VERSION, HeaderValue::from_static(version.as_str()));
}

/// Says in the answer which version it is in, and which extensions are active, under the names that were asked with.
pub(super) fn mark(answer: &mut HeaderMap, asked: Named, call: &Call) {
    say_version(answer, call.version);
    if call.extensions.is_empty() {
        return;
    }
    let Ok(active) = HeaderValue::from_str(&call.extensions.join(", ")) else {
        return;
    };
    for (name, _) in EXTENSIONS
        .into_iter()
        .zip(asked.0)
        .filter(|(_, is_asked)| *is_asked)
    {
        answer.insert(name, active.clone());
    }
}
