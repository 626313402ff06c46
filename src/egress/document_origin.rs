//! The door of somebody who follows a document: a card, or what an issuer says of itself.
//!
//! Back to where the document came from, and to where its reader says, it is like the trusted door. Anywhere else a
//! document leads no further inside than where it came from: one from the internet leads to the internet, one from a
//! private network to that too, and one from this machine also to this machine. None leads from https to http.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::address::{canonical_address, is_public};
use super::connector::{BoxError, Connector};
use super::ssrf_guard::{EgressPolicy, Network, SsrfGuard, SystemNetwork};
use super::trusted::tcp_connector;
use super::{ClientTls, Egress, origin};

/// Networks that are somebody's own.
const PRIVATE_NETWORKS: &[&str] = &[
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
];
/// How long a name may take to be resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

impl Egress {
    /// A door for whoever follows a document from `home`, who trusts these origins too, whatever it says.
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

/// Where a document came from.
struct DocumentOrigin {
    url: Uri,
    trusted: Vec<String>,
    /// Known when somebody has connected there: what its name means later changes nothing.
    zone: OnceLock<NetworkZone>,
    limit: Duration,
}

impl DocumentOrigin {
    async fn connect(
        self: Arc<Self>,
        mut tcp: HttpConnector,
        uri: Uri,
    ) -> Result<TcpStream, BoxError> {
        let target = origin(&uri);
        let is_same_origin = target == origin(&self.url);
        if is_same_origin || self.trusted.contains(&target) {
            let stream = tcp.call(uri).await.map(TokioIo::into_inner)?;
            if let (true, Ok(peer)) = (is_same_origin, stream.peer_addr()) {
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
            SsrfGuard::new(policy, SystemNetwork).connect(uri.to_string()),
        )
        .await?
    }

    /// How far inside it is. A document that was kept came from where its name leads now.
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
        let resolved = timeout(RESOLVE_TIMEOUT, SystemNetwork.resolve(host, 0)).await;
        let addresses = resolved.ok().and_then(Result::ok).unwrap_or_default();
        // The one that is least inside: nobody gains by a name with many addresses.
        let zone = addresses
            .into_iter()
            .map(NetworkZone::from_address)
            .min()
            .unwrap_or(NetworkZone::Public);
        *self.zone.get_or_init(|| zone)
    }
}

/// How far inside an address is.
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

    /// Where a document from there may lead.
    fn policy(self, is_secure: bool) -> EgressPolicy {
        let private = PRIVATE_NETWORKS.iter().filter(|_| self >= Self::Private);
        EgressPolicy {
            loopback: self == Self::Loopback,
            plain_http: !is_secure,
            allow: private.filter_map(|net| net.parse().ok()).collect(),
            allow_only: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ssrf_guard::BlockReason;
    use super::super::target::Target;
    use super::*;

    fn check_led(from: &str, to: &str, address: &str) -> Result<(), BlockReason> {
        let (home, is_secure) = (from.split_once(' ').unwrap().0, from.ends_with("https"));
        let policy = NetworkZone::from_address(home.parse().unwrap()).policy(is_secure);
        policy.check(&Target::parse(to)?, &[address.parse().unwrap()])
    }

    #[test]
    fn s20_s28_a_document_leads_no_further_inside_than_where_it_came_from() {
        let places = [
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
        for (to, address, allowed) in places {
            for (home, allowed) in ["8.8.8.8", "192.168.1.7", "127.0.0.1"]
                .into_iter()
                .zip(allowed)
            {
                assert_eq!(
                    check_led(&format!("{home} https"), to, address).is_ok(),
                    allowed,
                    "{home}: {to}"
                );
            }
        }
        assert!(check_led("8.8.8.8 http", "http://x.example/", "93.184.215.14").is_ok());
        assert!(
            check_led("8.8.8.8 https", "http://x.example/", "93.184.215.14").is_err(),
            "no way down"
        );
        assert_eq!(
            NetworkZone::from_address("::ffff:127.0.0.1".parse().unwrap()),
            NetworkZone::Loopback
        );
    }
}
