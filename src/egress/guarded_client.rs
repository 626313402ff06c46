//! HTTP client for URLs that a card, a caller or a message names: every request passes the SSRF guard.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::connector::Connector;
use super::policy::{BlockReason, EgressPolicy};
use super::resolver::{LookupError, LookupOwner, Resolver};
use super::ssrf_guard::{Network, SsrfGuard, SystemNetwork};
use super::target::{TargetHost, TargetUrl};
use super::{ClientTls, Egress, Protocol, block_reason};
use crate::model::{CallerKey, Error, ErrorKind};
use crate::rt::lock;
use crate::telemetry::metrics;

/// `Retry-After` of a URL whose host name was not resolved because of a limit.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// HTTP client that only reaches targets that its [`EgressPolicy`] allows. Clones share connections and limits.
#[derive(Clone)]
pub(crate) struct GuardedClient {
    pub(super) egress: Egress,
    check: Arc<Check>,
    hosts: Arc<HostLimiter>,
}

/// Erased [`SsrfGuard::addresses`], so that the client does not depend on the network type.
type Check = dyn Fn(String) -> CheckFuture + Send + Sync;
type CheckFuture = std::pin::Pin<Box<dyn Future<Output = Result<(), CheckError>> + Send>>;

/// Reason why no request would be sent to a URL now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckError {
    /// The SSRF guard blocks the target.
    Blocked(BlockReason),
    /// The party that named the URL has too many lookups.
    TooManyLookups {
        /// Value of `max_lookups_per_caller`.
        limit: usize,
    },
}

impl From<BlockReason> for CheckError {
    fn from(reason: BlockReason) -> Self {
        Self::Blocked(reason)
    }
}

impl CheckError {
    /// Returns the error of a request whose `field` has the URL.
    pub(crate) fn into_error(self, field: &'static str) -> Error {
        match self {
            Self::Blocked(reason) => Error::invalid(field, reason.to_string()),
            Self::TooManyLookups { limit } => Error::new(ErrorKind::RateLimited)
                .with_message(LookupError::TooMany { limit }.to_string())
                .with_retry_after(RETRY_AFTER),
        }
    }
}

/// Limits of one exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeLimits {
    /// Maximum time from connecting to the end of the response.
    pub(crate) time: Duration,
    /// Maximum number of bytes of the response body that are read.
    pub(crate) bytes: usize,
}

/// Response without its body: a caller must not learn what an internal service returns (S24).
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// Reason why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The SSRF guard blocked the target.
    Blocked(BlockReason),
    /// The connection failed or was lost.
    ConnectionFailed,
    /// The exchange took too long.
    TimedOut,
}

impl Egress {
    /// Returns a client for targets that other parties name, with a maximum number of concurrent exchanges per host.
    pub(crate) fn guarded(policy: EgressPolicy, per_host: usize) -> GuardedClient {
        let network = SystemNetwork(Resolver::new(policy.lookup_limits()));
        GuardedClient::new(policy, per_host, network)
    }
}

impl GuardedClient {
    pub(crate) fn new(policy: EgressPolicy, per_host: usize, network: impl Network) -> Self {
        let guard = SsrfGuard::new(policy, network);
        let checker = guard.clone();
        let connector =
            Connector::new(move |uri| LookupOwner::inherit(guard.clone().connect(uri.to_string())));
        Self {
            egress: Egress::with_connector(connector, &ClientTls::new()),
            check: Arc::new(move |url| {
                let guard = checker.clone();
                Box::pin(async move {
                    guard
                        .check(&url)
                        .await
                        .map_err(|error| check_error(&*error))
                })
            }),
            hosts: Arc::new(HostLimiter {
                per_host: per_host.max(1),
                by_host: Mutex::default(),
            }),
        }
    }

    /// Checks whether a request to this URL would be sent now.
    ///
    /// # Errors
    /// The reason why not. An unresolvable name has the same reason as a private address (S24).
    pub(crate) async fn check(&self, url: &str) -> Result<(), CheckError> {
        (self.check)(url.to_owned()).await?;
        // Rejects URLs that no request can be sent to in this build.
        let uri = url
            .parse()
            .map_err(|_| BlockReason::Url("must be an absolute http or https URL"))?;
        super::check_url(&uri)
            .map_err(|_| BlockReason::Url("must be one that can be called from here").into())
    }

    /// Waits for one of the concurrent exchanges with the host of a URL.
    pub(crate) async fn acquire_slot(
        &self,
        url: &str,
    ) -> Result<OwnedSemaphorePermit, BlockReason> {
        let slots = self.hosts.slots(TargetUrl::parse(url)?.host);
        slots
            .acquire_owned()
            .await
            .map_err(|_| BlockReason::Address)
    }

    /// Checks a URL that a caller named, like [`GuardedClient::check`]. The lookup is one of the caller's.
    pub(crate) async fn check_for(&self, caller: CallerKey, url: &str) -> Result<(), CheckError> {
        let owner = LookupOwner::Caller(caller);
        owner.scope(self.check(url)).await
    }

    /// Sends a request to a URL that a caller named, like [`GuardedClient::send`]. The lookup is one of the caller's.
    pub(crate) async fn send_for(
        &self,
        caller: CallerKey,
        request: Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<ResponseHead, SendError> {
        let owner = LookupOwner::Caller(caller);
        owner.scope(self.send(request, limits)).await
    }

    /// Sends a request and reads the response up to the limit. Redirects are returned, not followed.
    ///
    /// # Errors
    /// No response was received.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<ResponseHead, SendError> {
        timeout(limits.time, self.exchange(request, limits.bytes))
            .await
            .unwrap_or(Err(SendError::TimedOut))
    }

    async fn exchange(
        &self,
        request: Request<Bytes>,
        max_body_bytes: usize,
    ) -> Result<ResponseHead, SendError> {
        let response = self
            .egress
            .send(request, Protocol::Http1)
            .await
            .map_err(|error| {
                block_reason(&error).map_or(SendError::ConnectionFailed, |reason| {
                    metrics::record_egress_block();
                    SendError::Blocked(reason)
                })
            })?;
        let (head, body) = response.into_parts();
        // The body is read so that the connection can be reused. A longer body closes it.
        let _ = body.read(max_body_bytes).await;
        Ok(ResponseHead {
            status: head.status,
            headers: head.headers,
        })
    }
}

/// Converts the error of the guard. Counts a blocked target. A failed lookup has the same reason as a private address.
fn check_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> CheckError {
    if let Some(LookupError::TooMany { limit }) = error.downcast_ref() {
        metrics::record_limit_hit("max_lookups_per_caller");
        return CheckError::TooManyLookups { limit: *limit };
    }
    metrics::record_egress_block();
    error
        .downcast_ref::<BlockReason>()
        .copied()
        .unwrap_or(BlockReason::Address)
        .into()
}

/// Semaphores that bound the concurrent exchanges per host.
struct HostLimiter {
    per_host: usize,
    by_host: Mutex<HashMap<TargetHost, Weak<Semaphore>>>,
}

impl HostLimiter {
    fn slots(&self, host: TargetHost) -> Arc<Semaphore> {
        let mut by_host = lock(&self.by_host);
        if let Some(slots) = by_host.get(&host).and_then(Weak::upgrade) {
            return slots;
        }
        // Unused semaphores are removed: a new one has all its permits.
        by_host.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(Semaphore::new(self.per_host));
        by_host.insert(host, Arc::downgrade(&slots));
        slots
    }
}
