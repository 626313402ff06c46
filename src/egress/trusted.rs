//! The trusted door: for what the operator names.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tower_service::Service;

use super::connector::{CONNECT_TIMEOUT, Connector};
use super::{ClientTls, Egress};

impl Egress {
    /// A door to what the operator names: it is trusted to lead where they want.
    pub(crate) fn trusted() -> Self {
        Self::with_tls(&ClientTls::new(), CONNECT_TIMEOUT)
    }

    /// The same, for those who trust whom these settings trust, and make connections within this time.
    pub(crate) fn with_tls(tls: &ClientTls, connect: Duration) -> Self {
        Self::with_connector(Connector::tcp(connect), tls)
    }
}

impl Connector {
    /// Over TCP, to the host that the url names, within this time.
    fn tcp(limit: Duration) -> Self {
        let connector = tcp_connector(limit);
        Self::new(move |uri| {
            let connecting = connector.clone().call(uri);
            async move { connecting.await.map(TokioIo::into_inner) }
        })
    }
}

/// Connects over TCP, within this time.
pub(super) fn tcp_connector(limit: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(limit));
    connector.set_nodelay(true);
    // What goes over it is not its business.
    connector.enforce_http(false);
    connector
}
