//! Classification of failed connections, for callers that react to the cause.

use crate::model::{Error, ErrorKind};

/// Cause of a failed connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectError {
    /// The server presents the certificate of an authority as its own.
    CaCertificate,
    /// The certificate is valid for other names.
    CertificateName,
    /// The certificate is not trusted for another reason, such as an unknown authority.
    UntrustedCertificate,
    /// The server requires a client certificate.
    ClientCertificateRequired,
    /// The server does not use TLS on this port.
    NotTls,
    /// The response is not HTTP. The server may use TLS on this port.
    NotHttp,
    /// Any other cause, such as a refused connection.
    Other,
}

impl ConnectError {
    /// Whether the certificate of the server was refused.
    #[must_use]
    pub fn is_untrusted_certificate(self) -> bool {
        match self {
            Self::CaCertificate | Self::CertificateName | Self::UntrustedCertificate => true,
            Self::ClientCertificateRequired | Self::NotTls | Self::NotHttp | Self::Other => false,
        }
    }

    /// Classifies an error of a call; `None` if the connection did not fail.
    pub(super) fn from_error(error: &Error) -> Option<Self> {
        let source = std::error::Error::source(error)?;
        if error.kind() != ErrorKind::Unavailable {
            return None;
        }
        Some(Self::from_source(source))
    }

    fn from_source(source: &(dyn std::error::Error + 'static)) -> Self {
        if let Some(error) = super::tls::connect_error(source) {
            return error;
        }
        let mut causes = std::iter::successors(Some(source), |error| error.source());
        let is_not_http = causes.any(|cause| {
            cause
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_parse)
        });
        if is_not_http {
            Self::NotHttp
        } else {
            Self::Other
        }
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::io;

    use rustls::{AlertDescription, CertificateError, InvalidMessage};

    use super::*;

    fn classify(error: rustls::Error) -> Option<ConnectError> {
        let source = io::Error::new(io::ErrorKind::InvalidData, error);
        ConnectError::from_error(&Error::new(ErrorKind::Unavailable).with_source(source))
    }

    #[test]
    fn tls_errors_are_classified() {
        for (error, expected) in [
            (
                rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer),
                ConnectError::UntrustedCertificate,
            ),
            (
                rustls::Error::InvalidCertificate(CertificateError::NotValidForName),
                ConnectError::CertificateName,
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::CertificateRequired),
                ConnectError::ClientCertificateRequired,
            ),
            (
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType),
                ConnectError::NotTls,
            ),
            (
                rustls::Error::AlertReceived(AlertDescription::InternalError),
                ConnectError::Other,
            ),
        ] {
            assert_eq!(classify(error), Some(expected));
        }
    }

    #[test]
    fn other_errors_have_no_connection_cause() {
        let unavailable = Error::new(ErrorKind::Unavailable);
        assert_eq!(ConnectError::from_error(&unavailable), None);
        let internal = Error::internal("store failed");
        assert_eq!(ConnectError::from_error(&internal), None);
        let refused = Error::new(ErrorKind::Unavailable)
            .with_source(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(
            ConnectError::from_error(&refused),
            Some(ConnectError::Other)
        );
    }
}
