//! SSRF guard: protection against server-side request forgery and DNS rebinding.
//!
//! Cards, callers and messages contain URLs that could point into the private network. [`SsrfGuard`] resolves the host
//! once, checks all addresses against the [`EgressPolicy`], and dials exactly the addresses it checked. A name that
//! resolves to another address a moment later (DNS rebinding) is therefore harmless.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connector::{BoxError, CONNECT_TIMEOUT};
use super::policy::{BlockReason, EgressPolicy};
use super::resolver::{LookupError, Resolver};
use super::target::{TargetHost, TargetUrl};

/// Name resolution and TCP connections. Tests replace it.
pub(crate) trait Network: Send + Sync + 'static {
    /// Connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Resolves a host name to its addresses, within a deadline.
    fn resolve(&self, name: &str) -> impl Future<Output = Result<Vec<IpAddr>, LookupError>> + Send;

    /// Connects to an address.
    fn dial(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// The network of this machine.
pub(crate) struct SystemNetwork(pub(super) Arc<Resolver>);

impl Network for SystemNetwork {
    type Stream = TcpStream;

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        self.0
            .resolve(name)
            .await
            .map(|addresses| addresses.to_vec())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Maximum number of addresses of one host. Hosts with more are blocked.
const MAX_ADDRESSES: usize = 64;

/// Resolver and dialer that only connects to targets the policy allows.
pub(crate) struct SsrfGuard<N> {
    policy: EgressPolicy,
    network: N,
}

impl<N: Network> SsrfGuard<N> {
    pub(super) fn new(policy: EgressPolicy, network: N) -> Arc<Self> {
        Arc::new(Self { policy, network })
    }

    /// Checks a URL that will be connected to later. A name that the policy allows need not resolve yet: whatever its
    /// addresses are then, they are allowed, and the connection checks them again.
    ///
    /// # Errors
    /// As [`addresses`](Self::addresses).
    #[cfg(feature = "server")]
    pub(super) async fn check(&self, url: &str) -> Result<(), BoxError> {
        if self.policy.allows_name(&TargetUrl::parse(url)?.host) {
            return Ok(());
        }
        self.addresses(url).await.map(drop)
    }

    /// Resolves a URL and returns its addresses, all of which the policy allows.
    ///
    /// # Errors
    /// [`BlockReason`], or a failed name resolution.
    pub(super) async fn addresses(&self, url: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let target = TargetUrl::parse(url)?;
        let addresses = match &target.host {
            TargetHost::Ip(address) => vec![*address],
            TargetHost::Name(name) => self.network.resolve(name).await?,
        };
        if addresses.len() > MAX_ADDRESSES {
            return Err(BlockReason::Address.into());
        }
        self.policy.check(&target, &addresses)?;
        Ok(addresses
            .into_iter()
            .map(|address| SocketAddr::new(address, target.port))
            .collect())
    }

    /// Connects to one of the checked addresses, and to no other.
    pub(super) async fn connect(self: Arc<Self>, url: String) -> Result<N::Stream, BoxError> {
        let mut last_error = None;
        for address in self.addresses(&url).await? {
            match timeout(CONNECT_TIMEOUT, self.network.dial(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(cause)) => last_error = Some(cause),
                Err(_) => last_error = Some(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last_error
            .unwrap_or_else(|| io::ErrorKind::NotFound.into())
            .into())
    }
}
