//! Strict parser of target URLs. URLs that two parsers could read as different hosts are refused, so that the host that is
//! checked is the host that is dialed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::policy::BlockReason;

/// Scheme, host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetUrl {
    pub(super) https: bool,
    pub(super) host: TargetHost,
    pub(super) port: u16,
}

/// Host in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TargetHost {
    /// IP address.
    Ip(IpAddr),
    /// DNS name in lower case.
    Name(String),
}

/// Maximum length of a URL in bytes.
const MAX_URL_BYTES: usize = 2048;

impl TargetUrl {
    /// Parses an absolute http or https URL in ASCII, without credentials, with the host in its usual form.
    ///
    /// # Errors
    /// The reason why the URL is refused.
    pub(crate) fn parse(url: &str) -> Result<Self, BlockReason> {
        const FORBIDDEN: &[u8] = b"\\\"<>^`{|}#";
        if url.len() > MAX_URL_BYTES {
            return Err(BlockReason::Url("must be no longer than 2048 bytes"));
        }
        if !url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !FORBIDDEN.contains(&byte))
        {
            return Err(BlockReason::Url(
                "must be plain ASCII without a fragment: percent-encode other characters",
            ));
        }
        let (https, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            _ => return Err(BlockReason::Url("must be an absolute http or https URL")),
        };
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(BlockReason::Url("must carry no credentials"));
        }
        let (host, port) = split_port(authority).ok_or(INVALID_HOST)?;
        let port = match port {
            Some(text) => {
                parse_port(text).ok_or(BlockReason::Url("must name a port between 1 and 65535"))?
            }
            None if https => 443,
            None => 80,
        };
        Ok(Self {
            https,
            host: TargetHost::parse(host).ok_or(INVALID_HOST)?,
            port,
        })
    }
}

const INVALID_HOST: BlockReason =
    BlockReason::Url("must name a host: a domain name, or an address in its usual form");

/// Splits an authority into host, with its brackets, and port.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        0
    };
    match authority[end..].find(':') {
        Some(colon) => Some((
            &authority[..end + colon],
            Some(&authority[end + colon + 1..]),
        )),
        None => Some((authority, None)),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_decimal && *port > 0)
}

impl TargetHost {
    fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Ip(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Ip(address.into()));
        }
        is_name(text).then(|| Self::Name(text.to_ascii_lowercase()))
    }
}

/// Whether a host is a DNS name. Refuses octal, hexadecimal and short forms of IPv4 addresses, which resolvers accept: no
/// top-level domain begins with a digit.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253
        && text.split('.').all(is_label)
        && last.starts_with(|char: char| char.is_ascii_alphabetic())
}
