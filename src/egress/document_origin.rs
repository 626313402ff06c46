//! Egress for clients that follow a document (a card, or the metadata of an issuer) to the URLs it contains.
//!
//! Connections to the document's own origin and to trusted origins are not checked. Connections to any other origin pass
//! the SSRF guard with a policy by network zone: a document from the internet leads to public addresses only, one from a
//! private network also to private addresses, and one from this machine also to loopback. A document over https never
//! leads to http.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::address::{canonical_address, is_public};
use super::connector::{BoxError, Connector};
use super::policy::EgressPolicy;
use super::resolver::Resolver;
use super::ssrf_guard::{SsrfGuard, SystemNetwork};
use super::trusted::{TcpConnector, tcp_connector};
use super::{ClientTls, Egress, origin};

/// Networks for private use, including carrier-grade NAT and unique local addresses.
const PRIVATE_NETWORKS: &[&str] = &[
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
];

impl Egress {
    /// Returns an egress for the document at `document_url` and the URLs in it. The origins `trusted` are not checked.
    pub(crate) fn following_document(
        tls: &ClientTls,
        connect: Duration,
        document_url: &Uri,
        trusted: &[String],
    ) -> Self {
        let tcp = tcp_connector(connect);
        let origin = Arc::new(DocumentOrigin {
            url: document_url.clone(),
            trusted: trusted.to_vec(),
            zone: OnceLock::new(),
            limit: connect,
        });
        let connector = Connector::new(move |uri| origin.clone().connect(tcp.clone(), uri));
        Self::with_connector(connector, tls)
    }
}

/// Origin of a document.
struct DocumentOrigin {
    url: Uri,
    trusted: Vec<String>,
    /// Set by the first connection to the document. Later DNS changes have no effect.
    zone: OnceLock<NetworkZone>,
    limit: Duration,
}

impl DocumentOrigin {
    async fn connect(
        self: Arc<Self>,
        mut tcp: TcpConnector,
        uri: Uri,
    ) -> Result<TcpStream, BoxError> {
        let target = origin(&uri);
        let is_same_origin = target == origin(&self.url);
        if is_same_origin || self.trusted.contains(&target) {
            let stream = tcp.call(uri).await.map(TokioIo::into_inner)?;
            if is_same_origin && let Ok(peer) = stream.peer_addr() {
                self.zone
                    .get_or_init(|| NetworkZone::from_address(peer.ip()));
            }
            return Ok(stream);
        }
        let policy = self
            .zone()
            .await
            .policy(self.url.scheme_str() == Some("https"));
        timeout(
            self.limit,
            SsrfGuard::new(policy, SystemNetwork(Resolver::shared())).connect(uri.to_string()),
        )
        .await?
    }

    /// Returns the network zone of the document. If it came from a cache, its host is resolved now.
    async fn zone(&self) -> NetworkZone {
        if let Some(zone) = self.zone.get() {
            return *zone;
        }
        let host = self
            .url
            .host()
            .unwrap_or_default()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let resolved = Resolver::shared().resolve(host).await;
        let addresses = resolved.unwrap_or_default();
        // The least private address decides, so that a name with many addresses gains nothing.
        let zone = addresses
            .iter()
            .copied()
            .map(NetworkZone::from_address)
            .min()
            .unwrap_or(NetworkZone::Public);
        *self.zone.get_or_init(|| zone)
    }
}

/// Network zone of an address, in ascending order of privacy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NetworkZone {
    Public,
    Private,
    Loopback,
}

impl NetworkZone {
    fn from_address(address: IpAddr) -> Self {
        match canonical_address(address) {
            address if address.is_loopback() => Self::Loopback,
            address if is_public(address) => Self::Public,
            _ => Self::Private,
        }
    }

    /// Returns the policy for URLs in a document from this zone.
    fn policy(self, is_secure: bool) -> EgressPolicy {
        let private = PRIVATE_NETWORKS.iter().filter(|_| self >= Self::Private);
        EgressPolicy {
            loopback: self == Self::Loopback,
            plain_http: !is_secure,
            allow: private.filter_map(|net| net.parse().ok()).collect(),
            ..EgressPolicy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::BlockReason;
    use super::super::target::TargetUrl;
    use super::*;

    fn check_target(from: &str, to: &str, address: &str) -> Result<(), BlockReason> {
        let (address_of_document, scheme) = from.split_once(' ').unwrap();
        let zone = NetworkZone::from_address(address_of_document.parse().unwrap());
        let policy = zone.policy(scheme == "https");
        policy.check(&TargetUrl::parse(to)?, &[address.parse().unwrap()])
    }

    #[test]
    fn s20_s28_document_leads_to_no_more_private_zone_than_its_own() {
        let targets = [
            ("https://x.example/", "93.184.215.14", [true; 3]),
            ("https://x.example:8443/", "93.184.215.14", [true; 3]),
            ("https://x.example:22/", "93.184.215.14", [false; 3]),
            ("https://x.example/", "10.1.2.3", [false, true, true]),
            ("https://x.example/", "100.64.0.1", [false, true, true]),
            ("https://[fd00::7]/", "fd00::7", [false, true, true]),
            ("https://localhost/", "127.0.0.1", [false, false, true]),
            ("https://[::1]/", "::1", [false, false, true]),
            ("https://169.254.169.254/", "169.254.169.254", [false; 3]),
            ("https://x.example/", "0.0.0.0", [false; 3]),
            ("https://[fe80::1]/", "fe80::1", [false; 3]),
            ("https://x.example/", "224.0.0.1", [false; 3]),
        ];
        for (to, address, allowed) in targets {
            for (home, allowed) in ["8.8.8.8", "192.168.1.7", "127.0.0.1"]
                .into_iter()
                .zip(allowed)
            {
                assert_eq!(
                    check_target(&format!("{home} https"), to, address).is_ok(),
                    allowed,
                    "{home}: {to}"
                );
            }
        }
        assert!(check_target("8.8.8.8 http", "http://x.example/", "93.184.215.14").is_ok());
        assert!(
            check_target("8.8.8.8 https", "http://x.example/", "93.184.215.14").is_err(),
            "no downgrade from https"
        );
        assert_eq!(
            NetworkZone::from_address("::ffff:127.0.0.1".parse().unwrap()),
            NetworkZone::Loopback
        );
    }
}
