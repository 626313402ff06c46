//! TLS for outgoing connections: trusted certificate authorities and the client certificate.

mod no_verification;

use std::fmt;
use std::io;
use std::sync::Arc;

use http::Uri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::connector::{BoxError, BoxedStream, CONNECT_TIMEOUT, Connector};
use super::{ConnectError, Protocol};
use crate::model::{Error, Result};
use no_verification::AcceptAnyCertificate;

/// Reason why https URLs are refused; `None` with the feature `tls`.
pub(super) const HTTPS_UNSUPPORTED: Option<&str> = None;

/// TLS settings of a client. By default it trusts the certificate authorities of the system, or those in the file
/// `SSL_CERT_FILE`, and presents no certificate. TLS 1.3 and 1.2 are supported.
///
/// The authorities are read from files on every system, so that those of the system and of the caller form one list.
#[derive(Clone, Default)]
pub struct ClientTls {
    authorities: Vec<CertificateDer<'static>>,
    certificate: Option<Arc<ClientCertificate>>,
    insecure: bool,
}

/// Certificate chain and private key for mutual TLS.
struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientTls {
    /// Trusts the certificate authorities of the system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also trusts the certificate authorities of a PEM file.
    ///
    /// # Errors
    /// Invalid parameters if it contains no certificate, or one that is not of an authority.
    pub fn authority(mut self, pem: &[u8]) -> Result<Self> {
        let found = certificates(pem, "authority")?;
        let mut roots = RootCertStore::empty();
        for one in &found {
            roots.add(one.clone()).map_err(|cause| {
                Error::invalid("authority", "must contain certificates of authorities")
                    .with_source(cause)
            })?;
        }
        self.authorities.extend(found);
        Ok(self)
    }

    /// Presents this certificate to servers that request one (mutual TLS): a PEM file with the certificate and its
    /// intermediates, and a PEM file with its private key.
    ///
    /// # Errors
    /// Invalid parameters if a file is invalid or the key does not belong to the certificate.
    pub fn certificate(mut self, certificates: &[u8], key: &[u8]) -> Result<Self> {
        let chain = self::certificates(certificates, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| Error::invalid("key", "must be a PEM file with one private key"))?;
        self.certificate = Some(Arc::new(ClientCertificate { chain, key }));
        // Building a configuration is the only way to find out whether key and certificate match.
        self.config(RootCertStore::empty()).map_err(|cause| {
            Error::invalid("key", "does not belong to the certificate").with_source(cause)
        })?;
        Ok(self)
    }

    /// Accepts any server certificate. This gives no protection against a man in the middle; for tests only.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self {
            insecure: true,
            ..self
        }
    }

    /// Whether a client certificate is set.
    pub(crate) fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Adds TLS to the connections of a connector, for https URLs.
    pub(super) fn wrap(&self, connector: Connector, protocol: Protocol) -> Connector {
        let tls = Arc::new(LazyTlsConnector {
            tls: self.clone(),
            protocol,
            connector: OnceCell::new(),
        });
        Connector::from_stream(move |uri: Uri| {
            let connecting = connector.clone().call(uri.clone());
            let tls = tls.clone();
            async move {
                if uri.scheme_str() != Some("https") {
                    return Ok(connecting.await?.into_inner());
                }
                // Errors of the TLS configuration are reported before connecting.
                let tls = tls.get().await?;
                let name = server_name(&uri)?;
                let stream = connecting.await?.into_inner();
                let handshake = timeout(CONNECT_TIMEOUT, tls.connect(name, stream)).await;
                let stream = handshake.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Ok(BoxedStream::new(stream, is_http2))
            }
        })
    }

    /// Returns all trusted certificate authorities. Blocks: it reads files.
    fn roots(&self) -> std::result::Result<RootCertStore, BoxError> {
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        if roots.is_empty() && !self.insecure {
            return Err(
                "this system has no trusted certificate authorities: install them, or name a file that contains them"
                    .into(),
            );
        }
        Ok(roots)
    }

    /// Returns the configuration for connections that are not HTTP. Blocks: it reads files.
    #[cfg(feature = "postgres")]
    pub(crate) fn client_config(&self) -> std::result::Result<ClientConfig, BoxError> {
        Ok(self.config(self.roots()?)?)
    }

    /// Returns the configuration with these trusted certificate authorities.
    pub(crate) fn config(
        &self,
        roots: RootCertStore,
    ) -> std::result::Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let builder = if self.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate::new(&provider)))
        } else {
            builder.with_root_certificates(roots)
        };
        match &self.certificate {
            Some(certificate) => builder
                .with_client_auth_cert(certificate.chain.clone(), certificate.key.clone_key()),
            None => Ok(builder.with_no_client_auth()),
        }
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("authorities", &self.authorities.len())
            .field("certificate", &self.has_certificate())
            .field("insecure", &self.insecure)
            .finish()
    }
}

/// TLS connector that is created by the first https connection, so that plain HTTP reads no files.
struct LazyTlsConnector {
    tls: ClientTls,
    protocol: Protocol,
    connector: OnceCell<TlsConnector>,
}

impl LazyTlsConnector {
    async fn get(&self) -> std::result::Result<TlsConnector, BoxError> {
        let connector = self.connector.get_or_try_init(|| async {
            let tls = self.tls.clone();
            let roots = spawn_blocking(move || tls.roots()).await??;
            let mut config = self.tls.config(roots)?;
            config.alpn_protocols = match self.protocol {
                Protocol::Http1 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
                Protocol::Http2 => vec![b"h2".to_vec()],
            };
            Ok::<_, BoxError>(TlsConnector::from(Arc::new(config)))
        });
        connector.await.cloned()
    }
}

fn server_name(uri: &Uri) -> std::result::Result<ServerName<'static>, BoxError> {
    let host = uri
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    Ok(ServerName::try_from(host.to_owned())?)
}

fn certificates(pem: &[u8], field: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Error::invalid(
            field,
            "must be a PEM file with at least one certificate",
        )),
    }
}

/// Returns the reason why the server certificate was rejected, if that made the connection fail.
pub(super) fn certificate_error(failed: &(dyn std::error::Error + 'static)) -> Option<String> {
    match tls_error(failed)? {
        rustls::Error::InvalidCertificate(reason) => Some(reason.to_string()),
        _ => None,
    }
}

/// Classifies the TLS error that made a connection fail; `None` if there is none.
pub(super) fn connect_error(failed: &(dyn std::error::Error + 'static)) -> Option<ConnectError> {
    use rustls::{AlertDescription, CertificateError, InvalidMessage};
    Some(match tls_error(failed)? {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => ConnectError::CertificateName,
        // The verifier reports this case as an opaque error, which only its debug text identifies.
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            ConnectError::CaCertificate
        }
        rustls::Error::InvalidCertificate(_) => ConnectError::UntrustedCertificate,
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            ConnectError::ClientCertificateRequired
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => ConnectError::NotTls,
        _ => return None,
    })
}

/// Returns the TLS error among the causes of an error, also inside I/O errors.
fn tls_error<'a>(failed: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut causes = std::iter::successors(Some(failed), |error| error.source());
    causes.find_map(|error| {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        inner
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .or_else(|| error.downcast_ref())
    })
}
