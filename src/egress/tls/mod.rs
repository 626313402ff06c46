//! TLS on the way out: whom we trust, and who we are.

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

use super::Protocol;
use super::connector::{BoxError, BoxedStream, CONNECT_TIMEOUT, Connector};
use crate::model::{Error, Result};
use no_verification::AcceptAnyCertificate;

/// Why an address of https is refused; `None` where it is not.
pub(super) const HTTPS_UNSUPPORTED: Option<&str> = None;

/// Whom a client trusts over TLS, and the certificate that it shows. By default it trusts whom the system trusts, or
/// the file that `SSL_CERT_FILE` names, and shows nothing. TLS 1.3 and 1.2 are spoken.
///
/// The roots are read from files, the same way on every system, so that ours and the caller's stand in one list.
#[derive(Clone, Default)]
pub struct ClientTls {
    authorities: Vec<CertificateDer<'static>>,
    certificate: Option<Arc<ClientCertificate>>,
    insecure: bool,
}

struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientTls {
    /// Trusts whom the system trusts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities of a PEM file too.
    ///
    /// # Errors
    /// Invalid parameters: it has no certificate, or one that cannot vouch for another.
    pub fn authority(mut self, pem: &[u8]) -> Result<Self> {
        let found = certificates(pem, "authority")?;
        let mut roots = RootCertStore::empty();
        for one in &found {
            roots.add(one.clone()).map_err(|cause| {
                Error::invalid("authority", "must be certificates of authorities")
                    .with_source(cause)
            })?;
        }
        self.authorities.extend(found);
        Ok(self)
    }

    /// Shows this certificate to servers that ask for one (mutual TLS): PEM, the certificate first, then those that
    /// vouch for it; and its private key.
    ///
    /// # Errors
    /// Invalid parameters: one of them is not what it should be, or they do not belong together.
    pub fn certificate(mut self, certificates: &[u8], key: &[u8]) -> Result<Self> {
        let chain = self::certificates(certificates, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| Error::invalid("key", "must be a PEM file with one private key"))?;
        self.certificate = Some(Arc::new(ClientCertificate { chain, key }));
        // Whether they belong together is known only where they are used.
        self.config(RootCertStore::empty()).map_err(|cause| {
            Error::invalid("key", "does not belong to the certificate").with_source(cause)
        })?;
        Ok(self)
    }

    /// Trusts anybody: what is said is private only as long as nobody stands in between. For trying things out.
    #[must_use]
    pub fn insecure(self) -> Self {
        Self {
            insecure: true,
            ..self
        }
    }

    /// Whether it shows a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// The same connections, with TLS over them where the url says so.
    pub(super) fn wrap(&self, connector: Connector, protocol: Protocol) -> Connector {
        let tls = Arc::new(LazyTlsConnector {
            tls: self.clone(),
            protocol,
            ready: OnceCell::new(),
        });
        Connector::from_stream(move |uri: Uri| {
            let connecting = connector.clone().call(uri.clone());
            let tls = tls.clone();
            async move {
                if uri.scheme_str() != Some("https") {
                    return Ok(connecting.await?.into_inner());
                }
                // A door that does not work needs no connection.
                let (secure, name) = (tls.get().await?, server_name(&uri)?);
                let stream = connecting.await?.into_inner();
                let shaking = timeout(CONNECT_TIMEOUT, secure.connect(name, stream)).await;
                let stream = shaking.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Ok(BoxedStream::new(stream, is_http2))
            }
        })
    }

    /// Everybody who is trusted; reads files.
    fn roots(&self) -> std::result::Result<RootCertStore, BoxError> {
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        if roots.is_empty() && !self.insecure {
            return Err(
                "this system trusts no certificate authority: install them, or name a file of them"
                    .into(),
            );
        }
        Ok(roots)
    }

    fn config(&self, roots: RootCertStore) -> std::result::Result<ClientConfig, rustls::Error> {
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

/// Made ready by the first connection that needs it: who speaks plain HTTP reads no files.
struct LazyTlsConnector {
    tls: ClientTls,
    protocol: Protocol,
    ready: OnceCell<TlsConnector>,
}

impl LazyTlsConnector {
    async fn get(&self) -> std::result::Result<TlsConnector, BoxError> {
        let ready = self.ready.get_or_try_init(|| async {
            let tls = self.tls.clone();
            let roots = spawn_blocking(move || tls.roots()).await??;
            let mut config = self.tls.config(roots)?;
            config.alpn_protocols = match self.protocol {
                Protocol::Http1 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
                Protocol::Http2 => vec![b"h2".to_vec()],
            };
            Ok::<_, BoxError>(TlsConnector::from(Arc::new(config)))
        });
        ready.await.cloned()
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

/// What is wrong with the certificate of a server, if that is why there is no connection.
pub(super) fn certificate_error(failed: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = Some(failed);
    while let Some(error) = cause {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let found = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::InvalidCertificate(why)) = found.or_else(|| error.downcast_ref())
        {
            return Some(why.to_string());
        }
        cause = error.source();
    }
    None
}
