//! Base URL of the server or of one agent, as agent cards state it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::uri::Authority;
use http::{HeaderMap, Uri};

use crate::model::{Error, Result};

/// Absolute http(s) URL below which an agent is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BaseUrl {
    /// Scheme and authority.
    origin: String,
    /// Begins and ends with a slash.
    path: String,
}

impl BaseUrl {
    /// Returns the root URL of a listening address. An unspecified address becomes loopback, since
    /// clients cannot connect to it.
    pub(super) fn from_address(address: SocketAddr, tls: bool) -> Self {
        let host = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let scheme = if tls { "https" } else { "http" };
        Self {
            origin: format!("{scheme}://{}", SocketAddr::new(host, address.port())),
            path: "/".to_owned(),
        }
    }

    /// Parses a URL, such as the `public_url` setting.
    ///
    /// # Errors
    /// Invalid `public_url`: not an absolute http or https URL, or one with a query.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let invalid = || {
            Error::invalid(
                "public_url",
                "must be an absolute http or https URL without a query",
            )
        };
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let (Some(scheme @ ("http" | "https")), Some(authority), None) =
            (uri.scheme_str(), uri.authority(), uri.query())
        else {
            return Err(invalid());
        };
        let path = uri.path();
        let slash = if path.ends_with('/') { "" } else { "/" };
        Ok(Self {
            origin: format!("{scheme}://{authority}"),
            path: format!("{path}{slash}"),
        })
    }

    /// Returns the URL of the `X-Forwarded-Host`, `-Proto` and `-Prefix` headers of a proxy.
    /// Returns `None` if they are missing or invalid.
    pub(super) fn from_forwarded(headers: &HeaderMap) -> Option<Self> {
        let first_value = |name: &str| {
            let value = headers.get(name)?.to_str().ok()?;
            value.split(',').next().map(str::trim)
        };
        let host = first_value("x-forwarded-host")?;
        let scheme = first_value("x-forwarded-proto").unwrap_or("https");
        let prefix = first_value("x-forwarded-prefix").unwrap_or_default();
        Self::parse(&format!("{scheme}://{host}/{}", prefix.trim_matches('/'))).ok()
    }

    /// Returns the URL of a path below this one.
    pub(super) fn join(&self, path: &str) -> Self {
        match path {
            "" => self.clone(),
            path => Self {
                origin: self.origin.clone(),
                path: format!("{}{path}/", self.path),
            },
        }
    }

    /// Returns host and port, the form that gRPC clients expect. A missing port becomes that of the
    /// scheme.
    pub(super) fn authority(&self) -> String {
        let (scheme, authority) = self.origin.split_once("://").unwrap_or_default();
        let has_port = authority
            .parse()
            .is_ok_and(|authority: Authority| authority.port().is_some());
        match (has_port, scheme) {
            (true, _) => authority.to_owned(),
            (false, "https") => format!("{authority}:443"),
            (false, _) => format!("{authority}:80"),
        }
    }

    /// Whether the host is this machine: a loopback address, or a name below `localhost`.
    pub(super) fn is_loopback(&self) -> bool {
        let (_, authority) = self.origin.split_once("://").unwrap_or_default();
        let Ok(authority) = authority.parse::<Authority>() else {
            return false;
        };
        let host = authority.host().trim_matches(['[', ']']);
        match host.parse::<IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback(),
            Err(_) => {
                let name = host.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || name.ends_with(".localhost")
            }
        }
    }

    pub(super) fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// Returns the URL as cards state it: without a trailing slash, because clients append paths
    /// that begin with one.
    pub(super) fn card_url(&self) -> String {
        format!("{}{}", self.origin, self.path.trim_end_matches('/'))
    }

    /// Returns scheme, host and port for gRPC. A missing port becomes that of the scheme.
    pub(super) fn grpc_url(&self) -> String {
        let (scheme, _) = self.origin.split_once("://").unwrap_or_default();
        format!("{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_becomes_loopback() {
        for (address, url) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080/"),
            ("[::]:8080", "http://[::1]:8080/"),
        ] {
            assert_eq!(
                BaseUrl::from_address(address.parse().unwrap(), false).url(),
                url
            );
        }
    }

    #[test]
    fn public_url_with_path_and_without_port() {
        let base = BaseUrl::parse("https://agents.example.com/x").unwrap();
        assert_eq!(base.url(), "https://agents.example.com/x/");
        assert_eq!(base.card_url(), "https://agents.example.com/x");
        assert_eq!(base.grpc_url(), "https://agents.example.com:443");
        let root = BaseUrl::parse("http://[::1]:8080/").unwrap();
        assert_eq!(root.card_url(), "http://[::1]:8080");
        assert_eq!(root.grpc_url(), "http://[::1]:8080");
        assert_eq!(
            base.join("agents/echo").url(),
            "https://agents.example.com/x/agents/echo/"
        );
        for (url, authority) in [
            ("https://agents.example.com/x", "agents.example.com:443"),
            ("http://agents.example.com", "agents.example.com:80"),
            (
                "https://agents.example.com:8443/",
                "agents.example.com:8443",
            ),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(BaseUrl::parse(url).unwrap().authority(), authority);
        }
        for wrong in ["", "agents.example.com", "/x", "ftp://x/", "https://x/?y"] {
            assert!(BaseUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn base_url_from_forwarded_headers() {
        let forwarded = |headers: &[(&'static str, &str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            BaseUrl::from_forwarded(&headers.collect()).map(|base| base.url())
        };
        let host = ("x-forwarded-host", "agents.example.com, inner");
        assert_eq!(
            forwarded(&[host]).as_deref(),
            Some("https://agents.example.com/")
        );
        let all = [
            host,
            ("x-forwarded-proto", "http"),
            ("x-forwarded-prefix", "/a/b/"),
        ];
        assert_eq!(
            forwarded(&all).as_deref(),
            Some("http://agents.example.com/a/b/")
        );
        assert_eq!(forwarded(&[]), None);
        assert_eq!(forwarded(&[("x-forwarded-host", "x y")]), None);
        assert_eq!(
            forwarded(&[host, ("x-forwarded-proto", "javascript")]),
            None
        );
    }
}
