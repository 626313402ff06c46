//! The guarded door: for what a card, a caller or a message names.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::connect::Connector;
use super::guard::{Guard, Internet, Net, Reach, Refused};
use super::target::{Host, Target};
use super::{ClientTls, Egress, Protocol, refusal};
use crate::metrics;

/// A door through which only what [`Reach`] allows is reached. A clone is the same door.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub(super) egress: Egress,
    check: Arc<Check>,
    hosts: Arc<Hosts>,
}

type Check = dyn Fn(String) -> Checking + Send + Sync;
type Checking = std::pin::Pin<Box<dyn Future<Output = Result<(), Refused>> + Send>>;

/// What one exchange may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    /// From the first byte of the connection to the last of the answer that is read.
    pub(crate) time: Duration,
    /// How much of the answer is read.
    pub(crate) bytes: usize,
}

/// What came back; never a body, since nobody may learn what is said behind a door (S24).
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// Why nothing came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// We do not connect there.
    Refused(Refused),
    /// Nobody was there, or the connection was lost.
    Lost,
    /// It took too long.
    Late,
}

impl Egress {
    /// A door for places that somebody else names, with so many exchanges at a time with one host.
    pub(crate) fn guarded(reach: Reach, per_host: usize) -> Guarded {
        Guarded::new(reach, per_host, Internet)
    }
}

impl Guarded {
    pub(crate) fn new(reach: Reach, per_host: usize, net: impl Net) -> Self {
        let guard = Guard::new(reach, net);
        let checking = guard.clone();
        let connector = Connector::new(move |uri| guard.clone().connect(uri.to_string()));
        Self {
            egress: Egress::over(connector, &ClientTls::new()),
            check: Arc::new(move |url| {
                let guard = checking.clone();
                Box::pin(async move {
                    guard
                        .addresses(&url)
                        .await
                        .map(drop)
                        .map_err(|why| refused(&*why))
                })
            }),
            hosts: Arc::new(Hosts {
                per_host: per_host.max(1),
                by_name: Mutex::default(),
            }),
        }
    }

    /// Whether we would connect there now.
    ///
    /// # Errors
    /// Why not; a name that means nothing is as good as one that means something private.
    pub(crate) async fn check(&self, url: &str) -> Result<(), Refused> {
        (self.check)(url.to_owned()).await?;
        // What the door itself does not speak.
        let uri = url
            .parse()
            .map_err(|_| Refused::Url("must be an absolute http or https URL"))?;
        super::check(&uri).map_err(|_| Refused::Url("must be one that can be called from here"))
    }

    /// Waits for a place among the exchanges with the host of a url.
    pub(crate) async fn place(&self, url: &str) -> Result<OwnedSemaphorePermit, Refused> {
        let places = self.hosts.places(Target::parse(url)?.host);
        places.acquire_owned().await.map_err(|_| Refused::Address)
    }

    /// Sends a request, and reads as much of the answer as is allowed. A redirect is an answer like any other.
    ///
    /// # Errors
    /// Nothing came back.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
        caps: Caps,
    ) -> Result<Answer, Silence> {
        timeout(caps.time, self.exchange(request, caps.bytes))
            .await
            .unwrap_or(Err(Silence::Late))
    }

    async fn exchange(&self, request: Request<Bytes>, bytes: usize) -> Result<Answer, Silence> {
        let response = self
            .egress
            .send(request, Protocol::Http1)
            .await
            .map_err(|error| {
                refusal(&error).map_or(Silence::Lost, |why| {
                    metrics::egress_refused();
                    Silence::Refused(why)
                })
            })?;
        let (head, body) = response.into_parts();
        // Read for the sake of the connection alone; what is longer costs the connection.
        let _ = body.read(bytes).await;
        Ok(Answer {
            status: head.status,
            headers: head.headers,
        })
    }
}

fn refused(why: &(dyn std::error::Error + Send + Sync + 'static)) -> Refused {
    metrics::egress_refused();
    why.downcast_ref::<Refused>()
        .copied()
        .unwrap_or(Refused::Address)
}

/// How many exchanges there are with each host.
struct Hosts {
    per_host: usize,
    by_name: Mutex<HashMap<Host, Weak<Semaphore>>>,
}

impl Hosts {
    fn places(&self, host: Host) -> Arc<Semaphore> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = by_name.get(&host).and_then(Weak::upgrade) {
            return places;
        }
        // Those that nobody waits for are as good as full ones.
        by_name.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.per_host));
        by_name.insert(host, Arc::downgrade(&places));
        places
    }
}
