//! Egress policy: the targets that may be connected to when another party names the URL.
//!
//! [`EgressPolicy::check`] is the whole rule of the SSRF guard, a pure function of the URL and its resolved addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::address::{canonical_address, is_public};
use super::resolver::LookupLimits;
use super::target::{TargetHost, TargetUrl};
use crate::model::units::HumanDuration;

/// Policy for connections to targets that another party names. By default only the public internet, over TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct EgressPolicy {
    /// Also allows loopback addresses, with or without TLS. For development: anyone who can register a webhook then reaches
    /// every service on this machine.
    pub loopback: bool,
    /// Also allows targets without TLS.
    pub plain_http: bool,
    /// Also allows these targets, whatever their addresses and ports, with or without TLS. A webhook may be registered before
    /// its host name resolves.
    pub allow: Vec<AllowedTarget>,
    /// Allows only the targets in `allow`.
    pub allow_only: bool,
    /// Maximum number of concurrent lookups of host names that callers name. Each occupies a thread.
    pub max_lookups: usize,
    /// Maximum number of concurrent lookups for one caller. 16 times as many wait; further ones are refused.
    pub max_lookups_per_caller: usize,
    /// Maximum duration of a lookup, including the time in the queue.
    #[serde(with = "HumanDuration")]
    pub lookup_timeout: Duration,
    /// How long the addresses of a host are used again. A failed lookup is remembered for 5 seconds at most.
    #[serde(with = "HumanDuration")]
    pub lookup_cache_time: Duration,
}

impl Default for EgressPolicy {
    fn default() -> Self {
        let lookups = LookupLimits::default();
        Self {
            loopback: false,
            plain_http: false,
            allow: Vec::new(),
            allow_only: false,
            max_lookups: lookups.lookups,
            max_lookups_per_caller: lookups.lookups_per_owner,
            lookup_timeout: lookups.timeout,
            lookup_cache_time: lookups.cache_time,
        }
    }
}

/// Target that the operator allows: a host name, a domain with its subdomains, an address or a network.
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

/// Forms of an allowed target.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TargetPattern {
    Host(String),
    Subdomains(String),
    Cidr(IpNet),
}

/// Error for a text that is not an allowed target.
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
        let (domain, has_wildcard) = text
            .strip_prefix("*.")
            .map_or((text, false), |domain| (domain, true));
        match TargetUrl::parse(&format!("https://{domain}")) {
            Ok(TargetUrl {
                host: TargetHost::Name(name),
                port: 443,
                ..
            }) if name.len() == domain.len() => Ok(Self(if has_wildcard {
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

/// Reason why a target is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockReason {
    /// The URL itself; the text says why.
    Url(&'static str),
    /// An address behind the URL. Callers learn no more: neither the address nor whether the host exists (S24).
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
    /// Returns the limits on lookups of names that callers name.
    #[cfg(feature = "server")]
    pub(super) fn lookup_limits(&self) -> LookupLimits {
        LookupLimits {
            lookups: self.max_lookups,
            lookups_per_owner: self.max_lookups_per_caller,
            timeout: self.lookup_timeout,
            cache_time: self.lookup_cache_time,
        }
    }

    /// Whether the name of a host is in `allow`. All its addresses are allowed then.
    pub(super) fn allows_name(&self, host: &TargetHost) -> bool {
        self.allow.iter().any(|allowed| allowed.matches_host(host))
    }

    /// Checks a target and its resolved addresses. Every address must be allowed.
    pub(crate) fn check(
        &self,
        target: &TargetUrl,
        addresses: &[IpAddr],
    ) -> Result<(), BlockReason> {
        let is_host_allowed = self.allows_name(&target.host);
        let is_allowed = |address: &IpAddr| {
            is_host_allowed
                || (self.loopback && canonical_address(*address).is_loopback())
                || self
                    .allow
                    .iter()
                    .any(|allowed| allowed.contains_address(*address))
        };
        if addresses.is_empty() {
            return Err(BlockReason::Address);
        }
        if addresses.iter().all(is_allowed) {
            return Ok(());
        }
        if self.allow_only
            || !addresses
                .iter()
                .all(|address| is_allowed(address) || is_public(*address))
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

/// Whether a web server may listen on this port. Excludes ports of other protocols that could misinterpret an HTTP
/// request.
fn is_web_port(port: u16) -> bool {
    const BLOCKED_PORTS: &[u16] = &[
        1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6697, 10080, 11211,
    ];
    matches!(port, 80 | 443 | 1024..)
        && !BLOCKED_PORTS.contains(&port)
        && !(6665..=6669).contains(&port)
}
