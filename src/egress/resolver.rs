//! Name resolution on threads of its own, with fair shares, a deadline and a cache.
//!
//! `getaddrinfo` blocks its thread until the name servers answer or time out, which can take a minute. Lookups
//! therefore run on a [`ThreadPool`]: names that never answer occupy the share of the party that named them, and no
//! thread that serves anything else.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper_util::client::legacy::connect::dns::Name;
use tokio::time::timeout;
use tower_service::Service;

use super::connector::CONNECT_TIMEOUT;
use super::lookup_cache::LookupCache;
#[cfg(feature = "server")]
use crate::model::CallerKey;
use crate::rt::{PoolError, PoolLimits, ThreadPool, lock};

/// Number of waiting lookups of one party, as a multiple of its share of the threads.
const QUEUE_PER_THREAD: usize = 16;

/// Party on whose behalf names are resolved. Its lookups occupy at most its share of the threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LookupOwner {
    /// Caller that named the host.
    #[cfg(feature = "server")]
    Caller(CallerKey),
    /// Host that the operator or a document named.
    Host(Arc<str>),
}

tokio::task_local! {
    /// Owner of the lookups of the current request. A connector receives nothing but the URL.
    static LOOKUP_OWNER: LookupOwner;
}

impl LookupOwner {
    /// Runs a request whose lookups belong to this owner.
    #[cfg(feature = "server")]
    pub(super) async fn scope<F: Future>(self, request: F) -> F::Output {
        LOOKUP_OWNER.scope(self, request).await
    }

    /// Returns a future that keeps the owner of the current request, wherever it is polled.
    #[cfg(feature = "server")]
    pub(super) fn inherit<F: Future>(request: F) -> impl Future<Output = F::Output> {
        let owner = LOOKUP_OWNER.try_with(Clone::clone).ok();
        async move {
            match owner {
                Some(owner) => owner.scope(request).await,
                None => request.await,
            }
        }
    }

    /// Returns the owner of the current request; outside of [`LookupOwner::scope`] the host itself.
    fn current(name: &str) -> Self {
        LOOKUP_OWNER
            .try_with(Clone::clone)
            .unwrap_or_else(|_| Self::Host(name.into()))
    }
}

/// Limits of a [`Resolver`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupLimits {
    /// Maximum number of concurrent lookups.
    pub(crate) lookups: usize,
    /// Maximum number of concurrent lookups of one owner.
    pub(crate) lookups_per_owner: usize,
    /// Maximum duration of a lookup, including the time in the queue.
    pub(crate) timeout: Duration,
    /// How long a result is used again.
    pub(crate) cache_time: Duration,
}

impl Default for LookupLimits {
    fn default() -> Self {
        Self {
            lookups: 32,
            lookups_per_owner: 4,
            timeout: Duration::from_secs(5),
            cache_time: Duration::from_secs(30),
        }
    }
}

/// Reason why a name has no addresses.
#[derive(Debug)]
pub(crate) enum LookupError {
    /// The owner has too many lookups.
    TooMany {
        /// Limit on concurrent lookups of one owner.
        limit: usize,
    },
    /// The lookup did not end in time.
    TimedOut,
    /// The name cannot be resolved.
    Failed(io::Error),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { limit } => write!(
                f,
                "too many concurrent name lookups (limit: max_lookups_per_caller = {limit})"
            ),
            Self::TimedOut => f.write_str("the name lookup timed out"),
            Self::Failed(error) => write!(f, "the name cannot be resolved: {error}"),
        }
    }
}

impl std::error::Error for LookupError {}

/// Function that resolves a name and may block.
type Lookup = fn(&str) -> io::Result<Vec<IpAddr>>;

/// Resolver of host names.
pub(crate) struct Resolver {
    lookup: Lookup,
    limits: LookupLimits,
    threads: ThreadPool<LookupOwner>,
    cache: Arc<Mutex<LookupCache>>,
}

impl Resolver {
    /// Returns a resolver that uses `getaddrinfo`, so that names mean the same as for other programs of this machine.
    pub(crate) fn new(limits: LookupLimits) -> Arc<Self> {
        Self::with_lookup(limits, system_lookup)
    }

    fn with_lookup(limits: LookupLimits, lookup: Lookup) -> Arc<Self> {
        let limits = LookupLimits {
            lookups_per_owner: limits.lookups_per_owner.clamp(1, limits.lookups.max(1)),
            ..limits
        };
        let pool_limits = PoolLimits {
            threads: limits.lookups,
            threads_per_owner: limits.lookups_per_owner,
            queue_per_owner: limits.lookups_per_owner.saturating_mul(QUEUE_PER_THREAD),
        };
        Arc::new(Self {
            lookup,
            limits,
            threads: ThreadPool::new("attache-dns", pool_limits),
            cache: Arc::new(Mutex::new(LookupCache::new(limits.cache_time))),
        })
    }

    /// Returns the resolver for names from the operator and from documents. The process has one.
    pub(super) fn shared() -> Arc<Self> {
        static SHARED: LazyLock<Arc<Resolver>> = LazyLock::new(|| {
            Resolver::new(LookupLimits {
                timeout: CONNECT_TIMEOUT,
                ..LookupLimits::default()
            })
        });
        SHARED.clone()
    }

    /// Resolves a name on behalf of the current [`LookupOwner`].
    ///
    /// # Errors
    /// See [`LookupError`].
    pub(super) async fn resolve(&self, name: &str) -> Result<Arc<[IpAddr]>, LookupError> {
        if let Some(known) = lock(&self.cache).get(name, Instant::now()) {
            return known.map_err(|kind| LookupError::Failed(kind.into()));
        }
        let has_started = Arc::new(AtomicBool::new(false));
        let owner = LookupOwner::current(name);
        let lookup = self.threads.run(&owner, self.job(name, &has_started));
        match timeout(self.limits.timeout, lookup).await {
            Ok(Ok(resolved)) => resolved.map_err(LookupError::Failed),
            Ok(Err(PoolError::QueueFull)) => Err(self.too_many()),
            Ok(Err(error)) => Err(LookupError::Failed(io::Error::other(error))),
            Err(_) if has_started.load(Ordering::Relaxed) => Err(LookupError::TimedOut),
            Err(_) => Err(self.too_many()),
        }
    }

    /// Returns the blocking part of a lookup. It caches the result even if the deadline has passed.
    fn job(
        &self,
        name: &str,
        has_started: &Arc<AtomicBool>,
    ) -> impl FnOnce() -> io::Result<Arc<[IpAddr]>> + Send + 'static {
        let lookup = self.lookup;
        let name: Box<str> = name.into();
        let cache = self.cache.clone();
        let has_started = has_started.clone();
        move || {
            has_started.store(true, Ordering::Relaxed);
            let resolved = lookup(&name).map(Arc::from);
            let outcome = resolved.as_ref().map(Arc::clone).map_err(io::Error::kind);
            lock(&cache).insert(name, outcome, Instant::now());
            resolved
        }
    }

    fn too_many(&self) -> LookupError {
        LookupError::TooMany {
            limit: self.limits.lookups_per_owner,
        }
    }
}

/// Resolves a name with `getaddrinfo`.
fn system_lookup(name: &str) -> io::Result<Vec<IpAddr>> {
    #[cfg(all(test, feature = "server"))]
    tests::hang_if_requested(name);
    Ok((name, 0)
        .to_socket_addrs()?
        .map(|address| address.ip())
        .collect())
}

/// Shared resolver in the form that hyper's connector needs.
#[derive(Clone)]
pub(super) struct HyperResolver(pub(super) Arc<Resolver>);

impl Service<Name> for HyperResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = LookupError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, LookupError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LookupError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.0.clone();
        Box::pin(async move {
            let addresses = resolver.resolve(name.as_str()).await?;
            // The connector sets the port.
            let addresses: Vec<_> = addresses
                .iter()
                .map(|address| SocketAddr::new(*address, 0))
                .collect();
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
#[cfg(feature = "server")]
pub(crate) mod tests {
    use super::*;
    use crate::model::Caller;

    /// Domain whose names never resolve in unit tests: their lookups block until the process ends.
    pub(crate) const HANGING_DOMAIN: &str = ".hanging.invalid";

    pub(super) fn hang_if_requested(name: &str) {
        while name.ends_with(HANGING_DOMAIN) {
            std::thread::park();
        }
    }

    fn limits() -> LookupLimits {
        LookupLimits {
            lookups: 4,
            lookups_per_owner: 2,
            timeout: Duration::from_secs(20),
            cache_time: Duration::from_secs(30),
        }
    }

    fn caller(name: &str) -> LookupOwner {
        LookupOwner::Caller(CallerKey::Caller(Caller::new(name)))
    }

    /// Lookup that hangs below [`HANGING_DOMAIN`], fails below `.missing` and otherwise returns one address.
    fn fake_lookup(name: &str) -> io::Result<Vec<IpAddr>> {
        hang_if_requested(name);
        if name.ends_with(".missing") {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(vec![IpAddr::from([192, 0, 2, 1])])
    }

    #[tokio::test]
    async fn d01_hanging_names_do_not_delay_the_names_of_other_callers() {
        let resolver = Resolver::with_lookup(limits(), fake_lookup);
        let hanging: Vec<_> = (0..limits().lookups * 2)
            .map(|number| {
                let resolver = resolver.clone();
                let name = format!("{number}{HANGING_DOMAIN}");
                let lookup = async move { resolver.resolve(&name).await.is_ok() };
                tokio_util::task::TaskTracker::new().spawn(caller("mallory").scope(lookup))
            })
            .collect();
        tokio::task::yield_now().await;
        let found = caller("alice").scope(resolver.resolve("a.example")).await;
        assert_eq!(*found.unwrap(), [IpAddr::from([192, 0, 2, 1])]);
        for lookup in hanging {
            assert!(!lookup.is_finished(), "waits for its deadline");
            lookup.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d01_lookups_have_a_deadline_and_say_which_limit_they_hit() {
        let resolver = Resolver::with_lookup(limits(), fake_lookup);
        let resolve = |number: usize| {
            let resolver = resolver.clone();
            async move { resolver.resolve(&format!("{number}{HANGING_DOMAIN}")).await }
        };
        let all = (0..4).map(|number| caller("mallory").scope(resolve(number)));
        let results = futures::future::join_all(all).await;
        let waited = results
            .iter()
            .filter(|result| matches!(result, Err(LookupError::TooMany { limit: 2 })));
        assert!(results.iter().all(Result::is_err), "{results:?}");
        assert!(waited.count() >= 2, "at most 2 have started: {results:?}");
    }

    #[tokio::test]
    async fn results_are_cached_for_all_owners() {
        static LOOKUPS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let resolver = Resolver::with_lookup(limits(), |name| {
            LOOKUPS.fetch_add(1, Ordering::Relaxed);
            fake_lookup(name)
        });
        for owner in ["alice", "bob"] {
            let found = caller(owner).scope(resolver.resolve("a.example")).await;
            assert!(found.is_ok());
            let missing = caller(owner).scope(resolver.resolve("b.missing")).await;
            assert!(
                matches!(missing, Err(LookupError::Failed(error)) if error.kind() == io::ErrorKind::NotFound)
            );
        }
        assert_eq!(LOOKUPS.load(Ordering::Relaxed), 2);
    }
}
