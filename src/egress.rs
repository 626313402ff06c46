//! The only door to the outside: every connection we open is opened here.
//!
//! What the operator names is trusted ([`Egress::trusted`]); what a caller or a message names goes through
//! [`Egress::guarded`], which checks where it leads; and whoever follows a card has a door of both kinds
//! ([`Egress::led`]).
//!
//! Redirects are never followed: whoever asked decides what a 3xx means.

mod address;
mod connect;
#[cfg(feature = "server")]
mod fetch;
mod guard;
#[cfg(feature = "server")]
mod guarded;
mod led;
mod plain;
mod target;
#[cfg(test)]
#[cfg(feature = "server")]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "egress/no_tls.rs"]
mod tls;
mod trusted;
mod watch;

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
pub(crate) use connect::{CONNECT_TIMEOUT, Connector};
#[cfg(feature = "server")]
pub use fetch::{Fetched, FileFetcher};
pub use guard::{Allowed, NotAPlace, Reach};
#[cfg(all(test, feature = "server"))]
pub(crate) use guard::{Net, Refused};
#[cfg(feature = "server")]
pub(crate) use guarded::{Answer, Caps, Guarded, Silence};
pub use plain::{Http, HttpResponse};
#[cfg(not(feature = "tls"))]
pub(crate) use tls::ClientTls;
#[cfg(feature = "tls")]
pub use tls::ClientTls;
pub(crate) use watch::Watcher;
pub use watch::{Header, Traffic};

/// How long a connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How many connections to one host are kept for the next requests.
const MAX_IDLE_PER_HOST: usize = 32;

/// Sends requests. A clone shares the connections; they end with the last clone and the last body being read.
#[derive(Clone)]
pub(crate) struct Egress {
    http1: Client<Connector, Full<Bytes>>,
    http2: Client<Connector, Full<Bytes>>,
    open: Arc<DropGuard>,
    watcher: Option<Watcher>,
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
    pub(crate) fn over(connector: Connector, tls: &ClientTls) -> Self {
        let stop = CancellationToken::new();
        let connections = Connections {
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        };
        Self {
            http1: client(
                tls.over(connector.clone(), Protocol::Http1),
                connections.clone(),
                Protocol::Http1,
            ),
            http2: client(
                tls.over(connector, Protocol::Http2),
                connections,
                Protocol::Http2,
            ),
            open: Arc::new(stop.drop_guard()),
            watcher: None,
        }
    }

    /// Lets somebody see what passes.
    pub(crate) fn watched(self, watcher: Watcher) -> Self {
        Self {
            watcher: Some(watcher),
            ..self
        }
    }

    /// Lets whoever sees what passes there see what passes here.
    pub(crate) fn watched_as(self, other: &Self) -> Self {
        Self {
            watcher: other.watcher.clone(),
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
    ) -> Result<Response<Body>> {
        check(request.uri())?;
        let client = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        if let Some(watcher) = &self.watcher {
            watch::request(watcher, &request);
        }
        let there = origin(request.uri());
        let response = client
            .request(request.map(Full::new))
            .await
            .map_err(|cause| {
                match (refusal(&cause), tls::distrust(&cause), cause.is_connect()) {
                    (Some(why), ..) => {
                        self.lost(format!("{there} is not connected to: it {why}"), cause)
                    }
                    (None, Some(why), _) => self.lost(
                        format!("the certificate of the agent is not trusted: {why}"),
                        cause,
                    ),
                    (None, None, true) => self.lost("cannot connect to the agent", cause),
                    (None, None, false) => self.lost(LOST, cause),
                }
            })?;
        let shown = self.watcher.as_ref().map(|watcher| {
            watch::response(watcher, &response);
            watch::Shown::new(watcher.clone(), response.headers())
        });
        Ok(response.map(|incoming| Body {
            incoming,
            idle: None,
            _open: self.open.clone(),
            shown,
        }))
    }
}

impl Egress {
    fn lost(
        &self,
        what: impl Into<Cow<'static, str>>,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        let what = what.into();
        if let Some(watcher) = &self.watcher {
            watcher(&Traffic::Lost(format!("{what}: {}", causes(&cause))));
        }
        unreachable(what, cause)
    }
}

/// Whether a request surely did not reach anybody: there was no connection to send it over.
pub(crate) fn never_arrived(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let cause = source.and_then(|cause| cause.downcast_ref::<legacy::Error>());
    // Whoever is not trusted now is not trusted in a moment.
    cause.is_some_and(|cause| cause.is_connect() && tls::distrust(cause).is_none())
}

/// Why we did not connect, if that is why there is no answer.
fn refusal(failed: &(dyn std::error::Error + 'static)) -> Option<guard::Refused> {
    let mut causes = std::iter::successors(Some(failed), |error| error.source());
    causes
        .find_map(|cause| cause.downcast_ref::<guard::Refused>())
        .copied()
}

/// Whether a request was not sent because of where it would have gone: it is no use to try again.
pub(crate) fn was_refused(error: &Error) -> bool {
    refusal(error).is_some()
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
fn causes(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

const LOST: &str = "the connection to the agent was lost";

fn unreachable(
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
pub(crate) fn check(uri: &Uri) -> Result<()> {
    match (uri.scheme_str(), uri.authority()) {
        // It would print wherever the url does.
        (_, Some(authority)) if authority.as_str().contains('@') => Err(Error::invalid(
            "url",
            "must carry no credentials: send them in a header",
        )),
        (Some("http"), Some(_)) => Ok(()),
        (Some("https"), Some(_)) => {
            tls::REFUSED.map_or(Ok(()), |why| Err(Error::invalid("url", why)))
        }
        _ => Err(Error::invalid(
            "url",
            "must begin with http:// or https:// and name a host",
        )),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the door")]
fn client(
    connector: Connector,
    connections: Connections,
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
struct Connections {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl<F> Executor<F> for Connections
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks
            .spawn(self.stop.clone().run_until_cancelled_owned(future));
    }
}

/// The body of an answer; keeps its connection open.
pub(crate) struct Body {
    incoming: Incoming,
    idle: Option<Duration>,
    _open: Arc<DropGuard>,
    shown: Option<watch::Shown>,
}

impl Body {
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
                Err(silent) => return Some(Err(unreachable("the agent went silent", silent))),
            },
        };
        if let (Some(shown), Ok(frame)) = (&mut self.shown, &frame) {
            frame
                .data_ref()
                .into_iter()
                .for_each(|data| shown.piece(data));
        }
        Some(frame.map_err(|cause| unreachable(LOST, cause)))
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
mod checks {
    use super::*;

    #[test]
    fn s38_no_credentials_in_a_url() {
        let error = check(&Uri::from_static("http://me:hunter2@127.0.0.1/")).unwrap_err();
        assert!(
            error.message().contains("no credentials") && !error.message().contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn s21_only_http_gets_out() {
        assert_eq!(check(&Uri::from_static("http://127.0.0.1:1/x")), Ok(()));
        assert_eq!(
            check(&Uri::from_static("https://x")).is_ok(),
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
            assert!(!url.parse().is_ok_and(|uri| check(&uri).is_ok()), "{url}");
        }
    }
}
