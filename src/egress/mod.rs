//! The only door to the outside: every connection we open is opened here.
//!
//! What the operator names is trusted ([`Egress::trusted`]); what a caller or a message names goes through
//! [`Egress::guarded`], which checks where it leads; and whoever follows a card has a door of both kinds
//! ([`Egress::following_document`]).
//!
//! Redirects are never followed: whoever asked decides what a 3xx means.

mod address;
mod connector;
mod document_origin;
#[cfg(feature = "server")]
mod file_fetcher;
#[cfg(feature = "server")]
mod guarded_client;
mod http_client;
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
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::rt::Executor;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioTimer;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::model::{Error, ErrorKind, Result};
pub(crate) use connector::{CONNECT_TIMEOUT, Connector};
#[cfg(feature = "server")]
pub use file_fetcher::{FetchedFile, FileFetcher};
#[cfg(feature = "server")]
pub(crate) use guarded_client::{ExchangeLimits, GuardedClient, ResponseHead, SendError};
pub use http_client::{HttpClient, HttpResponse};
pub use ssrf_guard::{AllowedTarget, EgressPolicy, ParseTargetError};
#[cfg(all(test, feature = "server"))]
pub(crate) use ssrf_guard::{BlockReason, Network};
#[cfg(not(feature = "tls"))]
pub(crate) use tls::ClientTls;
#[cfg(feature = "tls")]
pub use tls::ClientTls;
pub(crate) use traffic::TrafficObserver;
pub use traffic::{Traffic, TrafficHeader};

/// How long a connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How many connections to one host are kept for the next requests.
const MAX_IDLE_PER_HOST: usize = 32;

/// Sends requests. A clone shares the connections; they end with the last clone and the last body being read.
#[derive(Clone)]
pub(crate) struct Egress {
    http1: Client<Connector, Full<Bytes>>,
    http2: Client<Connector, Full<Bytes>>,
    connection_guard: Arc<DropGuard>,
    observer: Option<TrafficObserver>,
}

/// Which HTTP to speak: without TLS there is nothing to negotiate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/2 where TLS settles on it.
    Http1,
    Http2,
}

impl Egress {
    /// Sends requests over connections that are made in this way.
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

    /// Lets somebody see what passes.
    pub(crate) fn with_traffic_observer(self, observer: TrafficObserver) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// Lets whoever sees what passes there see what passes here.
    pub(crate) fn with_observer_from(self, other: &Self) -> Self {
        Self {
            observer: other.observer.clone(),
            ..self
        }
    }

    /// Sends a request and waits for the head of the answer.
    ///
    /// # Errors
    /// The address may not be reached from here, cannot be, or went silent.
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
            .request(request.map(Full::new))
            .await
            .map_err(|cause| {
                match (
                    block_reason(&cause),
                    tls::certificate_error(&cause),
                    cause.is_connect(),
                ) {
                    (Some(why), ..) => self
                        .connection_error(format!("{target} is not connected to: it {why}"), cause),
                    (None, Some(why), _) => self.connection_error(
                        format!("the certificate of the agent is not trusted: {why}"),
                        cause,
                    ),
                    (None, None, true) => {
                        self.connection_error("cannot connect to the agent", cause)
                    }
                    (None, None, false) => self.connection_error(CONNECTION_LOST, cause),
                }
            })?;
        let observer = self.observer.as_ref().map(|observer| {
            traffic::observe_response(observer, &response);
            traffic::BodyObserver::new(observer.clone(), response.headers())
        });
        Ok(response.map(|incoming| ResponseBody {
            incoming,
            idle: None,
            _connection_guard: self.connection_guard.clone(),
            observer,
        }))
    }
}

impl Egress {
    fn connection_error(
        &self,
        what: impl Into<Cow<'static, str>>,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        let what = what.into();
        if let Some(observer) = &self.observer {
            observer(&Traffic::ConnectionError(format!(
                "{what}: {}",
                error_chain(&cause)
            )));
        }
        unavailable(what, cause)
    }
}

/// Whether a request surely did not reach anybody: there was no connection to send it over.
pub(crate) fn was_not_sent(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let cause = source.and_then(|cause| cause.downcast_ref::<legacy::Error>());
    // Whoever is not trusted now is not trusted in a moment.
    cause.is_some_and(|cause| cause.is_connect() && tls::certificate_error(cause).is_none())
}

/// Why we did not connect, if that is why there is no answer.
fn block_reason(failed: &(dyn std::error::Error + 'static)) -> Option<ssrf_guard::BlockReason> {
    let mut causes = std::iter::successors(Some(failed), |error| error.source());
    causes
        .find_map(|cause| cause.downcast_ref::<ssrf_guard::BlockReason>())
        .copied()
}

/// Whether a request was not sent because of where it would have gone: it is no use to try again.
pub(crate) fn was_blocked(error: &Error) -> bool {
    block_reason(error).is_some()
}

/// Scheme, host and port, as a url begins.
pub(crate) fn origin(url: &Uri) -> String {
    let host = url
        .authority()
        .map_or("", Authority::as_str)
        .to_ascii_lowercase();
    let scheme = url.scheme_str().unwrap_or("http");
    let default = if scheme == "https" { ":443" } else { ":80" };
    format!("{scheme}://{}", host.strip_suffix(default).unwrap_or(&host))
}

/// An error with all that caused it, on one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

const CONNECTION_LOST: &str = "the connection to the agent was lost";

fn unavailable(
    what: impl Into<Cow<'static, str>>,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message(what)
        .with_source(cause)
}

/// Refuses what we do not speak.
///
/// # Errors
/// Invalid parameters: the url is not one of HTTP.
pub(crate) fn check_url(uri: &Uri) -> Result<()> {
    match (uri.scheme_str(), uri.authority()) {
        // It would print wherever the url does.
        (_, Some(authority)) if authority.as_str().contains('@') => Err(Error::invalid(
            "url",
            "must carry no credentials: send them in a header",
        )),
        (Some("http"), Some(_)) => Ok(()),
        (Some("https"), Some(_)) => {
            tls::HTTPS_UNSUPPORTED.map_or(Ok(()), |why| Err(Error::invalid("url", why)))
        }
        _ => Err(Error::invalid(
            "url",
            "must begin with http:// or https:// and name a host",
        )),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn http_client(
    connector: Connector,
    connections: ConnectionTasks,
    protocol: Protocol,
) -> Client<Connector, Full<Bytes>> {
    Client::builder(connections)
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
        .http2_only(protocol == Protocol::Http2)
        .build(connector)
}

/// Where connections run, until the door is closed.
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

/// The body of an answer; keeps its connection open.
pub(crate) struct ResponseBody {
    incoming: Incoming,
    idle: Option<Duration>,
    _connection_guard: Arc<DropGuard>,
    observer: Option<traffic::BodyObserver>,
}

impl ResponseBody {
    /// Counts as lost when nothing comes for so long.
    pub(crate) fn with_idle(self, limit: Duration) -> Self {
        Self {
            idle: Some(limit),
            ..self
        }
    }

    /// The next piece, or the trailers.
    ///
    /// # Errors
    /// The connection was lost.
    pub(crate) async fn next(&mut self) -> Option<Result<Frame<Bytes>>> {
        let frame = match self.idle {
            None => self.incoming.frame().await?,
            Some(limit) => match timeout(limit, self.incoming.frame()).await {
                Ok(frame) => frame?,
                Err(silent) => return Some(Err(unavailable("the agent went silent", silent))),
            },
        };
        if let (Some(observer), Ok(frame)) = (&mut self.observer, &frame) {
            frame
                .data_ref()
                .into_iter()
                .for_each(|data| observer.push(data));
        }
        Some(frame.map_err(|cause| unavailable(CONNECTION_LOST, cause)))
    }

    /// Reads it whole, up to a limit.
    ///
    /// # Errors
    /// The connection was lost, or the body is larger.
    pub(crate) async fn read(mut self, limit: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(frame) = self.next().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > limit {
                return Err(too_large(limit));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

/// An answer that is larger than we read.
pub(crate) fn too_large(limit: usize) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message(format!("Invalid agent response: larger than {limit} bytes"))
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
