//! The guarded door: for what a card, a caller or a message names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::connector::Connector;
use super::ssrf_guard::{BlockReason, EgressPolicy, Network, SsrfGuard, SystemNetwork};
use super::target::{Target, TargetHost};
use super::{ClientTls, Egress, Protocol, block_reason};
use crate::telemetry::metrics;

/// A door through which only what [`EgressPolicy`] allows is reached. A clone is the same door.
#[derive(Clone)]
pub(crate) struct GuardedClient {
    pub(super) egress: Egress,
    check: Arc<Check>,
    hosts: Arc<HostLimiter>,
}

type Check = dyn Fn(String) -> Checking + Send + Sync;
type Checking = std::pin::Pin<Box<dyn Future<Output = Result<(), BlockReason>> + Send>>;

/// What one exchange may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeLimits {
    /// From the first byte of the connection to the last of the answer that is read.
    pub(crate) time: Duration,
    /// How much of the answer is read.
    pub(crate) bytes: usize,
}

/// What came back; never a body, since nobody may learn what is said behind a door (S24).
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// Why nothing came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// We do not connect there.
    Blocked(BlockReason),
    /// Nobody was there, or the connection was lost.
    ConnectionFailed,
    /// It took too long.
    TimedOut,
}

impl Egress {
    /// A door for places that somebody else names, with so many exchanges at a time with one host.
    pub(crate) fn guarded(policy: EgressPolicy, per_host: usize) -> GuardedClient {
        GuardedClient::new(policy, per_host, SystemNetwork)
    }
}

impl GuardedClient {
    pub(crate) fn new(policy: EgressPolicy, per_host: usize, network: impl Network) -> Self {
        let guard = SsrfGuard::new(policy, network);
        let checking = guard.clone();
        let connector = Connector::new(move |uri| guard.clone().connect(uri.to_string()));
        Self {
            egress: Egress::with_connector(connector, &ClientTls::new()),
            check: Arc::new(move |url| {
                let guard = checking.clone();
                Box::pin(async move {
                    guard
                        .addresses(&url)
                        .await
                        .map(drop)
                        .map_err(|why| record_block(&*why))
                })
            }),
            hosts: Arc::new(HostLimiter {
                per_host: per_host.max(1),
                by_host: Mutex::default(),
            }),
        }
    }

    /// Whether we would connect there now.
    ///
    /// # Errors
    /// Why not; a name that means nothing is as good as one that means something private.
    pub(crate) async fn check(&self, url: &str) -> Result<(), BlockReason> {
        (self.check)(url.to_owned()).await?;
        // What the door itself does not speak.
        let uri = url
            .parse()
            .map_err(|_| BlockReason::Url("must be an absolute http or https URL"))?;
        super::check_url(&uri)
            .map_err(|_| BlockReason::Url("must be one that can be called from here"))
    }

    /// Waits for a place among the exchanges with the host of a url.
    pub(crate) async fn acquire_slot(
        &self,
        url: &str,
    ) -> Result<OwnedSemaphorePermit, BlockReason> {
        let slots = self.hosts.slots(Target::parse(url)?.host);
        slots
            .acquire_owned()
            .await
            .map_err(|_| BlockReason::Address)
    }

    /// Sends a request, and reads as much of the answer as is allowed. A redirect is an answer like any other.
    ///
    /// # Errors
    /// Nothing came back.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
        caps: ExchangeLimits,
    ) -> Result<ResponseHead, SendError> {
        timeout(caps.time, self.exchange(request, caps.bytes))
            .await
            .unwrap_or(Err(SendError::TimedOut))
    }

    async fn exchange(
        &self,
        request: Request<Bytes>,
        bytes: usize,
    ) -> Result<ResponseHead, SendError> {
        let response = self
            .egress
            .send(request, Protocol::Http1)
            .await
            .map_err(|error| {
                block_reason(&error).map_or(SendError::ConnectionFailed, |why| {
                    metrics::record_egress_block();
                    SendError::Blocked(why)
                })
            })?;
        let (head, body) = response.into_parts();
        // Read for the sake of the connection alone; what is longer costs the connection.
        let _ = body.read(bytes).await;
        Ok(ResponseHead {
            status: head.status,
            headers: head.headers,
        })
    }
}

fn record_block(why: &(dyn std::error::Error + Send + Sync + 'static)) -> BlockReason {
    metrics::record_egress_block();
    why.downcast_ref::<BlockReason>()
        .copied()
        .unwrap_or(BlockReason::Address)
}

/// How many exchanges there are with each host.
struct HostLimiter {
    per_host: usize,
    by_host: Mutex<HashMap<TargetHost, Weak<Semaphore>>>,
}

impl HostLimiter {
    fn slots(&self, host: TargetHost) -> Arc<Semaphore> {
        let mut by_host = self.by_host.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = by_host.get(&host).and_then(Weak::upgrade) {
            return slots;
        }
        // Those that nobody waits for are as good as full ones.
        by_host.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(Semaphore::new(self.per_host));
        by_host.insert(host, Arc::downgrade(&slots));
        slots
    }
}
