//! Where an agent is reached, as its card says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;
use http::uri::Authority;

use crate::model::{Error, Result};

/// Where an agent is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Scheme and authority.
    origin: String,
    /// Begins and ends with a slash.
    path: String,
}

impl Place {
    /// The root of what listens on an address; "every address of this machine" is none that a client can use.
    pub(super) fn listening(address: SocketAddr, tls: bool) -> Self {
        let host = match address.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let scheme = if tls { "https" } else { "http" };
        Self { origin: format!("{scheme}://{}", SocketAddr::new(host, address.port())), path: "/".to_owned() }
    }

    /// What the operator says.
    ///
    /// # Errors
    /// It is not an absolute http or https URL.
    pub(super) fn public(url: &str) -> Result<Self> {
        let wrong = || Error::invalid("public_url", "must be an absolute http or https URL without a query");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (Some(scheme @ ("http" | "https")), Some(authority), None) =
            (uri.scheme_str(), uri.authority(), uri.query())
        else {
            return Err(wrong());
        };
        let path = uri.path();
        let slash = if path.ends_with('/') { "" } else { "/" };
        Ok(Self { origin: format!("{scheme}://{authority}"), path: format!("{path}{slash}") })
    }

    /// Host and port, as clients of gRPC want them.
    pub(super) fn authority(&self) -> String {
        let (scheme, authority) = self.origin.split_once("://").unwrap_or_default();
        let named = authority.parse().is_ok_and(|authority: Authority| authority.port().is_some());
        match (named, scheme) {
            (true, _) => authority.to_owned(),
            (false, "https") => format!("{authority}:443"),
            (false, _) => format!("{authority}:80"),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_every_address() {
        for (address, url) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080/"),
            ("[::]:8080", "http://[::1]:8080/"),
        ] {
            assert_eq!(Place::listening(address.parse().unwrap(), false).url(), url);
        }
    }

    #[test]
    fn a_public_url_may_have_a_path_and_no_port() {
        let place = Place::public("https://agents.example.com/x").unwrap();
        assert_eq!(place.url(), "https://agents.example.com/x/");
        for (url, authority) in [
            ("https://agents.example.com/x", "agents.example.com:443"),
            ("http://agents.example.com", "agents.example.com:80"),
            ("https://agents.example.com:8443/", "agents.example.com:8443"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(Place::public(url).unwrap().authority(), authority);
        }
        for wrong in ["", "agents.example.com", "/x", "ftp://x/", "https://x/?y"] {
            assert!(Place::public(wrong).is_err(), "{wrong}");
        }
    }
}
