//! Exposure of a server: the ways in which other machines can reach it.
//!
//! An exposed server must authenticate its callers, or allow anonymous ones explicitly. The listening address alone does
//! not decide this: a proxy in front of a loopback address serves the whole network.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::base_url::BaseUrl;
use super::settings::ServerSettings;
use crate::model::{Error, Result};

/// Reason why other machines can reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposure {
    /// It listens on this address, which is not a loopback address.
    Listener(SocketAddr),
    /// Its public URL names a host other than this machine.
    PublicUrl(String),
    /// It trusts the headers of a proxy at this address.
    TrustedProxy(IpAddr),
}

impl Exposure {
    /// Returns the first reason why other machines can reach a server with these settings; `None` if only this machine can.
    ///
    /// # Errors
    /// Invalid `public_url`.
    pub fn find(
        addresses: &[SocketAddr],
        public_url: Option<&str>,
        settings: &ServerSettings,
    ) -> Result<Option<Self>> {
        let listener = addresses
            .iter()
            .find(|address| !address.ip().to_canonical().is_loopback());
        if let Some(address) = listener {
            return Ok(Some(Self::Listener(*address)));
        }
        if let Some(url) = public_url
            && !BaseUrl::parse(url)?.is_loopback()
        {
            return Ok(Some(Self::PublicUrl(url.to_owned())));
        }
        let proxy = settings.trusted_proxies.first();
        Ok(proxy.map(|proxy| Self::TrustedProxy(*proxy)))
    }
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(address) => write!(f, "other machines can reach {address}"),
            Self::PublicUrl(url) => write!(f, "other machines can reach {url} (public_url)"),
            Self::TrustedProxy(proxy) => write!(
                f,
                "other machines can reach the server through the proxy {proxy} (trusted_proxies)"
            ),
        }
    }
}

/// Refusal to serve anonymous callers of other machines. Source of the error of [`Server::bind`](super::Server::bind).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExposureError {
    /// Reason why other machines can reach the server.
    pub exposure: Exposure,
}

impl fmt::Display for ExposureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, and callers are not authenticated", self.exposure)
    }
}

impl std::error::Error for ExposureError {}

impl From<ExposureError> for Error {
    fn from(error: ExposureError) -> Self {
        let fix =
            format!("is missing: {error}; set `Server::access`, or `Server::allow_anonymous`");
        Self::invalid("access", fix).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(address: &str, public_url: Option<&str>, proxies: &[&str]) -> Option<Exposure> {
        let settings = ServerSettings {
            trusted_proxies: proxies.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..ServerSettings::default()
        };
        Exposure::find(&[address.parse().unwrap()], public_url, &settings).unwrap()
    }

    #[test]
    fn e02_public_addresses_urls_and_proxies_expose_a_server() {
        let local = "127.0.0.1:80";
        for address in [
            "127.0.0.1:80",
            "127.9.9.9:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert_eq!(find(address, None, &[]), None, "{address}");
        }
        for address in [
            "0.0.0.0:80",
            "[::]:80",
            "10.0.0.1:80",
            "[::ffff:10.0.0.1]:80",
        ] {
            let exposure = find(address, None, &[]);
            assert_eq!(exposure, Some(Exposure::Listener(address.parse().unwrap())));
        }
        for url in [
            "http://localhost:80",
            "http://a.localhost/",
            "http://127.0.0.2",
            "https://[::1]:8080/a",
        ] {
            assert_eq!(find(local, Some(url), &[]), None, "{url}");
        }
        for url in [
            "https://agents.example.com",
            "http://localhost.example.com",
            "http://10.0.0.1",
            "http://0.0.0.0",
            "http://[::]/",
            "http://127.0.0.1.example.com",
        ] {
            let exposure = find(local, Some(url), &[]);
            assert_eq!(exposure, Some(Exposure::PublicUrl(url.to_owned())));
        }
        // A proxy on this machine also forwards calls of others.
        for proxy in ["127.0.0.1", "10.0.0.1"] {
            let exposure = find(local, None, &[proxy]);
            assert_eq!(
                exposure,
                Some(Exposure::TrustedProxy(proxy.parse().unwrap()))
            );
        }
    }
}
