//! In place of TLS where its feature is off.

use super::Protocol;
use super::connector::Connector;

/// Why an address of https is refused; `None` where it is not.
pub(super) const HTTPS_UNSUPPORTED: Option<&str> =
    Some("must begin with http://: https needs the feature `tls`");

/// Nothing to set.
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

/// Nothing is checked, so nothing is distrusted.
pub(super) fn certificate_error(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}
