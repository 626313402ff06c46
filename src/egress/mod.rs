//! Outgoing HTTP: every connection to another server is opened here.
//!
//! Three kinds of [`Egress`] differ in who names the URL:
//! - the operator or the program: [`Egress::trusted`], without checks;
//! - a caller or a message: [`Egress::guarded`], with the SSRF guard ([`ssrf_guard`], [`EgressPolicy`]);
//! - a card or another document: [`Egress::following_document`], guarded except for the document's own origin.
//!
//! Redirects are never followed here: the caller of a request decides.

mod address;
mod connect_error;
mod connector;
mod document_origin;
#[cfg(feature = "server")]
mod file_fetcher;
#[cfg(feature = "server")]
mod guarded_client;
mod http_client;
mod lookup_cache;
mod policy;
mod request_body;
mod resolver;
mod response_body;
mod ssrf_guard;
#[cfg(test)]
#[cfg(feature = "server")]
mod ssrf_tests;
mod target;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_disabled.rs"]
mod tls;
mod traffic;
mod trusted;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response, Uri};
use hyper::rt::Executor;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioTimer;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::model::{Error, ErrorKind, Result};
pub use connect_error::ConnectError;
pub(crate) use connector::{CONNECT_TIMEOUT, Connector};
#[cfg(feature = "server")]
pub use file_fetcher::{FetchedFile, FileFetcher};
#[cfg(feature = "server")]
pub(crate) use guarded_client::{ExchangeLimits, GuardedClient, ResponseHead, SendError};
pub use http_client::{HttpClient, HttpResponse};
#[cfg(all(test, feature = "server"))]
pub(crate) use policy::BlockReason;
pub use policy::{AllowedTarget, EgressPolicy, ParseTargetError};
#[cfg(all(test, feature = "server"))]
pub(crate) use resolver::{LookupError, tests::HANGING_DOMAIN};
pub(crate) use response_body::{ResponseBody, too_large};
#[cfg(all(test, feature = "server"))]
pub(crate) use ssrf_guard::Network;
#[cfg(not(feature = "tls"))]
pub(crate) use tls::ClientTls;
#[cfg(feature = "tls")]
pub use tls::ClientTls;
pub(crate) use traffic::TrafficObserver;
pub use traffic::{Traffic, TrafficHeader};

use request_body::RequestBody;

/// Time for which an idle connection stays in the pool.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of idle connections per host.
const MAX_IDLE_PER_HOST: usize = 32;
const CONNECTION_LOST: &str = "the connection to the agent was lost";

/// HTTP client with connection pools. Clones share them; connections are closed with the last clone and the last
/// response body.
#[derive(Clone)]
pub(crate) struct Egress {
    http1: Client<Connector, RequestBody>,
    http2: Client<Connector, RequestBody>,
    connection_guard: Arc<DropGuard>,
    observer: Option<TrafficObserver>,
}

/// HTTP version. Without TLS it cannot be negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, or HTTP/2 if TLS negotiates it.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Egress {
    /// Returns an egress that opens connections with `connector`, and adds TLS for https.
    pub(crate) fn with_connector(connector: Connector, tls: &ClientTls) -> Self {
        let stop = CancellationToken::new();
        let connections = ConnectionTasks {
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        };
        Self {
            http1: http_client(
                tls.wrap(connector.clone(), Protocol::Http1),
                connections.clone(),
                Protocol::Http1,
            ),
            http2: http_client(
                tls.wrap(connector, Protocol::Http2),
                connections,
                Protocol::Http2,
            ),
            connection_guard: Arc::new(stop.drop_guard()),
            observer: None,
        }
    }

    /// Passes all traffic to `observer`.
    pub(crate) fn with_traffic_observer(self, observer: TrafficObserver) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// Uses the traffic observer of another egress.
    pub(crate) fn with_observer_from(self, other: &Self) -> Self {
        Self {
            observer: other.observer.clone(),
            ..self
        }
    }

    /// Sends a request and waits for the response head.
    ///
    /// # Errors
    /// Invalid parameters for an invalid URL. Unavailable if the target is blocked or unreachable, or the connection was
    /// lost.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
        protocol: Protocol,
    ) -> Result<Response<ResponseBody>> {
        check_url(request.uri())?;
        let client = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        if let Some(observer) = &self.observer {
            traffic::observe_request(observer, &request);
        }
        let target = origin(request.uri());
        let response = client
            .request(request.map(RequestBody::new))
            .await
            .map_err(|cause| self.connection_error(&target, cause))?;
        let observer = self.observer.as_ref().map(|observer| {
            traffic::observe_response(observer, &response);
            traffic::BodyObserver::new(observer.clone(), response.headers())
        });
        Ok(response
            .map(|incoming| ResponseBody::new(incoming, self.connection_guard.clone(), observer)))
    }

    fn connection_error(&self, target: &str, cause: legacy::Error) -> Error {
        let message: Cow<'static, str> = if let Some(reason) = block_reason(&cause) {
            format!("connections to {target} are blocked: the URL {reason}").into()
        } else if let Some(reason) = tls::certificate_error(&cause) {
            format!("the certificate of the agent is not trusted: {reason}").into()
        } else if cause.is_connect() {
            "cannot connect to the agent".into()
        } else {
            CONNECTION_LOST.into()
        };
        if let Some(observer) = &self.observer {
            let text = format!("{message}: {}", error_chain(&cause));
            observer(&Traffic::ConnectionError(text));
        }
        unavailable(message, cause)
    }
}

/// Whether a request was certainly not sent, because no connection was established.
pub(crate) fn was_not_sent(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let cause = source.and_then(|cause| cause.downcast_ref::<legacy::Error>());
    // An untrusted certificate is excluded: the next attempt would fail the same way.
    cause.is_some_and(|cause| cause.is_connect() && tls::certificate_error(cause).is_none())
}

/// Returns the reason why the SSRF guard blocked the target, if that made the request fail.
pub(crate) fn block_reason(
    failed: &(dyn std::error::Error + 'static),
) -> Option<policy::BlockReason> {
    let mut causes = std::iter::successors(Some(failed), |error| error.source());
    causes
        .find_map(|cause| cause.downcast_ref::<policy::BlockReason>())
        .copied()
}

/// Whether the SSRF guard blocked the target. Retrying makes no sense.
pub(crate) fn was_blocked(error: &Error) -> bool {
    block_reason(error).is_some()
}

/// Returns the origin of a URL: scheme, host, and port unless it is the default.
pub(crate) fn origin(url: &Uri) -> String {
    let host = url
        .authority()
        .map_or("", Authority::as_str)
        .to_ascii_lowercase();
    let scheme = url.scheme_str().unwrap_or("http");
    let default = if scheme == "https" { ":443" } else { ":80" };
    format!("{scheme}://{}", host.strip_suffix(default).unwrap_or(&host))
}

/// Formats an error and its causes on one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn unavailable(
    what: impl Into<Cow<'static, str>>,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message(what)
        .with_source(cause)
}

/// Checks that a URL has a supported scheme, a host and no credentials.
///
/// # Errors
/// Invalid parameters, with the reason.
pub(crate) fn check_url(uri: &Uri) -> Result<()> {
    match (uri.scheme_str(), uri.authority()) {
        // Credentials would appear wherever the URL is logged.
        (_, Some(authority)) if authority.as_str().contains('@') => Err(Error::invalid(
            "url",
            "must carry no credentials: send them in a header",
        )),
        (Some("http"), Some(_)) => Ok(()),
        (Some("https"), Some(_)) => {
            tls::HTTPS_UNSUPPORTED.map_or(Ok(()), |reason| Err(Error::invalid("url", reason)))
        }
        _ => Err(Error::invalid(
            "url",
            "must begin with http:// or https:// and name a host",
        )),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that creates HTTP clients"
)]
fn http_client(
    connector: Connector,
    connections: ConnectionTasks,
    protocol: Protocol,
) -> Client<Connector, RequestBody> {
    Client::builder(connections)
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
        .http2_only(protocol == Protocol::Http2)
        .build(connector)
}

/// Executor of connection tasks. They are cancelled when the egress is dropped.
#[derive(Clone)]
struct ConnectionTasks {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl<F> Executor<F> for ConnectionTasks
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks
            .spawn(self.stop.clone().run_until_cancelled_owned(future));
    }
}

#[cfg(test)]
mod url_tests {
    use super::*;

    #[test]
    fn s38_no_credentials_in_a_url() {
        let error = check_url(&Uri::from_static("http://me:hunter2@127.0.0.1/")).unwrap_err();
        assert!(
            error.message().contains("no credentials") && !error.message().contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn s21_only_http_urls_are_accepted() {
        assert_eq!(check_url(&Uri::from_static("http://127.0.0.1:1/x")), Ok(()));
        assert_eq!(
            check_url(&Uri::from_static("https://x")).is_ok(),
            cfg!(feature = "tls")
        );
        for url in [
            "file:///etc/passwd",
            "gopher://x/",
            "ftp://x",
            "/x",
            "x:1",
            "unix://x",
            "data:,x",
        ] {
            assert!(
                !url.parse().is_ok_and(|uri| check_url(&uri).is_ok()),
                "{url}"
            );
        }
    }
}
