//! Egress for URLs that the operator or the program names. They are trusted and not checked by the SSRF guard.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tower_service::Service;

use super::connector::{CONNECT_TIMEOUT, Connector};
use super::resolver::{HyperResolver, Resolver};
use super::{ClientTls, Egress};

impl Egress {
    /// Returns an egress without the SSRF guard, with default TLS settings.
    pub(crate) fn trusted() -> Self {
        Self::with_tls(&ClientTls::new(), CONNECT_TIMEOUT)
    }

    /// Returns an egress without the SSRF guard, with these TLS settings and this connect timeout.
    pub(crate) fn with_tls(tls: &ClientTls, connect: Duration) -> Self {
        Self::with_connector(Connector::tcp(connect), tls)
    }
}

impl Connector {
    /// Connects over TCP to the host of the URL.
    fn tcp(limit: Duration) -> Self {
        let connector = tcp_connector(limit);
        Self::new(move |uri| {
            let connecting = connector.clone().call(uri);
            async move { connecting.await.map(TokioIo::into_inner) }
        })
    }
}

/// TCP connector that resolves names with the shared [`Resolver`].
pub(super) type TcpConnector = HttpConnector<HyperResolver>;

/// Returns a TCP connector with a connect timeout.
pub(super) fn tcp_connector(limit: Duration) -> TcpConnector {
    let mut connector = HttpConnector::new_with_resolver(HyperResolver(Resolver::shared()));
    connector.set_connect_timeout(Some(limit));
    connector.set_nodelay(true);
    // Also accepts https URLs: TLS is added on top.
    connector.enforce_http(false);
    connector
}
