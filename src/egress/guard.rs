//! Where we connect when somebody else names the place: a card, a caller, a message.
//!
//! [`Reach::check`] is the whole rule, a pure function of the url and the addresses behind it. [`Guard`] resolves,
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

use super::address::{is_public, meant};
use super::connect::{CONNECT_TIMEOUT, Failed};
use super::target::{Host, Target};

/// Where others may have us connect: the public internet over TLS, unless more is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Reach {
    /// Also to this machine, in plain HTTP if wanted. For development: whoever can name a webhook then reaches
    /// everything that listens here.
    pub loopback: bool,
    /// Also without TLS.
    pub plain_http: bool,
    /// Also to these, whatever their addresses and ports, and without TLS if wanted.
    pub allow: Vec<Allowed>,
    /// To nothing but these.
    pub allow_only: bool,
}

/// A place that the operator has allowed.
///
/// ```
/// use attache::Allowed;
///
/// for text in ["hooks.example.com", "*.example.com", "10.1.0.0/16", "fd00::7"] {
///     assert_eq!(text.parse::<Allowed>().unwrap().to_string(), text);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(with = "String")
)]
pub struct Allowed(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Host(String),
    Below(String),
    Net(IpNet),
}

/// A text that names no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAPlace;

impl fmt::Display for NotAPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "must be a host name, `*.` and a domain, an address, or a network such as 10.1.0.0/16",
        )
    }
}

impl std::error::Error for NotAPlace {}

impl FromStr for Allowed {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self(Kind::Net(net)));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(Kind::Net(address.into())));
        }
        let (domain, below) = text
            .strip_prefix("*.")
            .map_or((text, false), |domain| (domain, true));
        match Target::parse(&format!("https://{domain}")) {
            Ok(Target {
                host: Host::Name(name),
                port: 443,
                ..
            }) if name.len() == domain.len() => Ok(Self(if below {
                Kind::Below(name)
            } else {
                Kind::Host(name)
            })),
            _ => Err(NotAPlace),
        }
    }
}

impl TryFrom<String> for Allowed {
    type Error = NotAPlace;

    fn try_from(text: String) -> Result<Self, NotAPlace> {
        text.parse()
    }
}

impl From<Allowed> for String {
    fn from(allowed: Allowed) -> Self {
        allowed.to_string()
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Host(name) => f.write_str(name),
            Kind::Below(name) => write!(f, "*.{name}"),
            Kind::Net(net) if net.prefix_len() == net.max_prefix_len() => {
                write!(f, "{}", net.addr())
            }
            Kind::Net(net) => write!(f, "{net}"),
        }
    }
}

impl Allowed {
    fn names(&self, host: &Host) -> bool {
        match (&self.0, host) {
            (Kind::Host(known), Host::Name(name)) => known == name,
            (Kind::Below(domain), Host::Name(name)) => name
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (Kind::Net(_), _) | (_, Host::Ip(_)) => false,
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        matches!(&self.0, Kind::Net(net) if net.contains(&meant(address)))
    }
}

/// Why we do not connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The url itself says why.
    Url(&'static str),
    /// What is behind it. Whoever asks learns no more: not what there is, and not whether there is anything (S24).
    Address,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url(why) => why,
            Self::Address => "must lead to a public address",
        })
    }
}

impl std::error::Error for Refused {}

impl Reach {
    /// Whether a target may be connected to, at all of these addresses.
    pub(crate) fn check(&self, target: &Target, addresses: &[IpAddr]) -> Result<(), Refused> {
        let named = self.allow.iter().any(|allowed| allowed.names(&target.host));
        let known = |address: &IpAddr| {
            named
                || (self.loopback && meant(*address).is_loopback())
                || self.allow.iter().any(|allowed| allowed.holds(*address))
        };
        if addresses.is_empty() {
            return Err(Refused::Address);
        }
        if addresses.iter().all(known) {
            return Ok(());
        }
        if self.allow_only
            || !addresses
                .iter()
                .all(|address| known(address) || is_public(*address))
        {
            return Err(Refused::Address);
        }
        if !target.https && !self.plain_http {
            return Err(Refused::Url("must begin with https://"));
        }
        if !is_web_port(target.port) {
            return Err(Refused::Url(
                "must name a port of the web: 80, 443, or one above 1023",
            ));
        }
        Ok(())
    }
}

/// Whether something of the web may listen there, and no older service that would misread what we say.
fn is_web_port(port: u16) -> bool {
    const OTHERS: &[u16] = &[
        1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6697, 10080, 11211,
    ];
    matches!(port, 80 | 443 | 1024..) && !OTHERS.contains(&port) && !(6665..=6669).contains(&port)
}

/// What names mean, and how an address is reached.
pub(crate) trait Net: Send + Sync + 'static {
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
pub(crate) struct Internet;

impl Net for Internet {
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
const MOST_ADDRESSES: usize = 64;

/// The one who stands at the door.
pub(crate) struct Guard<N> {
    pub(super) reach: Reach,
    net: N,
}

impl<N: Net> Guard<N> {
    pub(super) fn new(reach: Reach, net: N) -> Arc<Self> {
        Arc::new(Self { reach, net })
    }

    /// The addresses behind a url, all of which may be connected to.
    ///
    /// # Errors
    /// [`Refused`], or the name means nothing now.
    pub(super) async fn addresses(&self, url: &str) -> Result<Vec<SocketAddr>, Failed> {
        let target = Target::parse(url)?;
        let addresses = match &target.host {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => {
                timeout(RESOLVE_TIMEOUT, self.net.resolve(name, target.port)).await??
            }
        };
        if addresses.len() > MOST_ADDRESSES {
            return Err(Refused::Address.into());
        }
        self.reach.check(&target, &addresses)?;
        Ok(addresses
            .into_iter()
            .map(|address| SocketAddr::new(address, target.port))
            .collect())
    }

    /// Connects to an address that was checked, and to no other.
    pub(super) async fn connect(self: Arc<Self>, url: String) -> Result<N::Stream, Failed> {
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
