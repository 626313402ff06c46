//! Replacement of TLS if the feature `tls` is disabled: https URLs are refused.

use super::connector::Connector;
use super::{ConnectError, Protocol};

/// Reason why https URLs are refused.
pub(super) const HTTPS_UNSUPPORTED: Option<&str> =
    Some("must begin with http://: https needs the feature `tls`");

/// Empty TLS settings.
#[derive(Clone)]
pub(crate) struct ClientTls;

impl ClientTls {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(super) fn wrap(&self, connector: Connector, _: Protocol) -> Connector {
        connector
    }
}

/// Returns `None`: without TLS there are no certificates.
pub(super) fn certificate_error(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}

/// Returns `None`: without TLS there are no TLS errors.
pub(super) fn connect_error(_: &(dyn std::error::Error + 'static)) -> Option<ConnectError> {
    None
}
