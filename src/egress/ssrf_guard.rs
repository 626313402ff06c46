//! Where we connect when somebody else names the place: a card, a caller, a message.
//!
//! [`EgressPolicy::check`] is the whole rule, a pure function of the url and the addresses behind it. [`SsrfGuard`] resolves,
//! checks and dials exactly what was checked, so that a name which means something else a moment later gains nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::{canonical_address, is_public};
use super::connector::{BoxError, CONNECT_TIMEOUT};
use super::target::{Target, TargetHost};

/// Where others may have us connect: the public internet over TLS, unless more is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct EgressPolicy {
    /// Also to this machine, in plain HTTP if wanted. For development: whoever can name a webhook then reaches
    /// everything that listens here.
    pub loopback: bool,
    /// Also without TLS.
    pub plain_http: bool,
    /// Also to these, whatever their addresses and ports, and without TLS if wanted.
    pub allow: Vec<AllowedTarget>,
    /// To nothing but these.
    pub allow_only: bool,
}

/// A place that the operator has allowed.
///
/// ```
/// use attache::AllowedTarget;
///
/// for text in ["hooks.example.com", "*.example.com", "10.1.0.0/16", "fd00::7"] {
///     assert_eq!(text.parse::<AllowedTarget>().unwrap().to_string(), text);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(with = "String")
)]
pub struct AllowedTarget(TargetPattern);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TargetPattern {
    Host(String),
    Subdomains(String),
    Cidr(IpNet),
}

/// A text that names no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseTargetError;

impl fmt::Display for ParseTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "must be a host name, `*.` and a domain, an address, or a network such as 10.1.0.0/16",
        )
    }
}

impl std::error::Error for ParseTargetError {}

impl FromStr for AllowedTarget {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self(TargetPattern::Cidr(net)));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(TargetPattern::Cidr(address.into())));
        }
        let (domain, below) = text
            .strip_prefix("*.")
            .map_or((text, false), |domain| (domain, true));
        match Target::parse(&format!("https://{domain}")) {
            Ok(Target {
                host: TargetHost::Name(name),
                port: 443,
                ..
            }) if name.len() == domain.len() => Ok(Self(if below {
                TargetPattern::Subdomains(name)
            } else {
                TargetPattern::Host(name)
            })),
            _ => Err(ParseTargetError),
        }
    }
}

impl TryFrom<String> for AllowedTarget {
    type Error = ParseTargetError;

    fn try_from(text: String) -> Result<Self, ParseTargetError> {
        text.parse()
    }
}

impl From<AllowedTarget> for String {
    fn from(allowed: AllowedTarget) -> Self {
        allowed.to_string()
    }
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TargetPattern::Host(name) => f.write_str(name),
            TargetPattern::Subdomains(name) => write!(f, "*.{name}"),
            TargetPattern::Cidr(net) if net.prefix_len() == net.max_prefix_len() => {
                write!(f, "{}", net.addr())
            }
            TargetPattern::Cidr(net) => write!(f, "{net}"),
        }
    }
}

impl AllowedTarget {
    fn matches_host(&self, host: &TargetHost) -> bool {
        match (&self.0, host) {
            (TargetPattern::Host(known), TargetHost::Name(name)) => known == name,
            (TargetPattern::Subdomains(domain), TargetHost::Name(name)) => name
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (TargetPattern::Cidr(_), _) | (_, TargetHost::Ip(_)) => false,
        }
    }

    fn contains_address(&self, address: IpAddr) -> bool {
        matches!(&self.0, TargetPattern::Cidr(net) if net.contains(&canonical_address(address)))
    }
}

/// Why we do not connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockReason {
    /// The url itself says why.
    Url(&'static str),
    /// What is behind it. Whoever asks learns no more: not what there is, and not whether there is anything (S24).
    Address,
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url(why) => why,
            Self::Address => "must lead to a public address",
        })
    }
}

impl std::error::Error for BlockReason {}

impl EgressPolicy {
    /// Whether a target may be connected to, at all of these addresses.
    pub(crate) fn check(&self, target: &Target, addresses: &[IpAddr]) -> Result<(), BlockReason> {
        let named = self
            .allow
            .iter()
            .any(|allowed| allowed.matches_host(&target.host));
        let known = |address: &IpAddr| {
            named
                || (self.loopback && canonical_address(*address).is_loopback())
                || self
                    .allow
                    .iter()
                    .any(|allowed| allowed.contains_address(*address))
        };
        if addresses.is_empty() {
            return Err(BlockReason::Address);
        }
        if addresses.iter().all(known) {
            return Ok(());
        }
        if self.allow_only
            || !addresses
                .iter()
                .all(|address| known(address) || is_public(*address))
        {
            return Err(BlockReason::Address);
        }
        if !target.https && !self.plain_http {
            return Err(BlockReason::Url("must begin with https://"));
        }
        if !is_web_port(target.port) {
            return Err(BlockReason::Url(
                "must name a port of the web: 80, 443, or one above 1023",
            ));
        }
        Ok(())
    }
}

/// Whether something of the web may listen there, and no older service that would misread what we say.
fn is_web_port(port: u16) -> bool {
    const BLOCKED_PORTS: &[u16] = &[
        1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6697, 10080, 11211,
    ];
    matches!(port, 80 | 443 | 1024..)
        && !BLOCKED_PORTS.contains(&port)
        && !(6665..=6669).contains(&port)
}

/// What names mean, and how an address is reached.
pub(crate) trait Network: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The addresses of a name.
    fn resolve(
        &self,
        name: &str,
        port: u16,
    ) -> impl Future<Output = io::Result<Vec<IpAddr>>> + Send;

    /// Connects to an address.
    fn dial(&self, address: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// The net as this machine knows it.
pub(crate) struct SystemNetwork;

impl Network for SystemNetwork {
    type Stream = TcpStream;

    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, port))
            .await?
            .map(|address| address.ip())
            .collect())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// How long a name may take to be resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many addresses of one host are looked at; more are not tried.
const MAX_ADDRESSES: usize = 64;

/// The one who stands at the door.
pub(crate) struct SsrfGuard<N> {
    pub(super) policy: EgressPolicy,
    net: N,
}

impl<N: Network> SsrfGuard<N> {
    pub(super) fn new(policy: EgressPolicy, net: N) -> Arc<Self> {
        Arc::new(Self { policy, net })
    }

    /// The addresses behind a url, all of which may be connected to.
    ///
    /// # Errors
    /// [`BlockReason`], or the name means nothing now.
    pub(super) async fn addresses(&self, url: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let target = Target::parse(url)?;
        let addresses = match &target.host {
            TargetHost::Ip(address) => vec![*address],
            TargetHost::Name(name) => {
                timeout(RESOLVE_TIMEOUT, self.net.resolve(name, target.port)).await??
            }
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

    /// Connects to an address that was checked, and to no other.
    pub(super) async fn connect(self: Arc<Self>, url: String) -> Result<N::Stream, BoxError> {
        let mut last = None;
        for address in self.addresses(&url).await? {
            match timeout(CONNECT_TIMEOUT, self.net.dial(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(cause)) => last = Some(cause),
                Err(_) => last = Some(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last
            .unwrap_or_else(|| io::ErrorKind::NotFound.into())
            .into())
    }
}
