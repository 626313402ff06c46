//! TLS of the server: certificate, client certificates, and the handshake.

use std::fmt;
use std::io;
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::builder::Server;
use super::transport::{SecureStream, TlsHandshake};
use crate::model::{Error, Result};
use crate::rt::{read_lock, write_lock};

/// TLS configuration: certificate chain, private key, and client authentication.
///
/// Clones share the certificate. [`renew`](Self::renew) replaces it for all of them, also in a
/// running server.
#[derive(Clone)]
pub struct Tls {
    resolver: Arc<CertificateResolver>,
    acceptor: TlsAcceptor,
}

/// Resolver that returns the current certificate.
#[derive(Debug)]
struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(read_lock(&self.0).clone())
    }
}

impl Tls {
    /// Loads a certificate chain (leaf first) and its private key from PEM.
    ///
    /// The server offers TLS 1.3 and 1.2, with HTTP/2 and HTTP/1.1 by ALPN.
    ///
    /// # Errors
    /// Invalid: not PEM of the expected kind, or the key does not match the certificate.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self> {
        let certified = Arc::new(load_certified_key(certificates, key)?);
        let resolver = Arc::new(CertificateResolver(RwLock::new(certified)));
        let acceptor = build_acceptor(&resolver, None)?;
        Ok(Self { resolver, acceptor })
    }

    /// Verifies client certificates against these certificate authorities, in PEM.
    ///
    /// The handshake fails for an invalid certificate and, if `required`, for a missing one.
    /// [`Certificates`](crate::auth::Certificates) maps certificates to callers.
    ///
    /// # Errors
    /// Invalid: the PEM contains no certificate.
    pub fn verify_clients(self, authorities: &[u8], required: bool) -> Result<Self> {
        Ok(Self {
            acceptor: build_acceptor(
                &self.resolver,
                Some(client_verifier(authorities, required)?),
            )?,
            ..self
        })
    }

    /// Replaces the certificate for new connections. Open connections are not affected.
    ///
    /// # Errors
    /// Those of [`from_pem`](Self::from_pem). The old certificate then stays in use.
    pub fn renew(&self, certificates: &[u8], key: &[u8]) -> Result<()> {
        let renewed = Arc::new(load_certified_key(certificates, key)?);
        *write_lock(&self.resolver.0) = renewed;
        Ok(())
    }
}

/// Creates the TLS acceptor. Without a `verifier` it requests no client certificate.
fn build_acceptor(
    resolver: &Arc<CertificateResolver>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<TlsAcceptor> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::internal)?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(resolver.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn client_verifier(authorities: &[u8], required: bool) -> Result<Arc<dyn ClientCertVerifier>> {
    let invalid = || {
        Error::invalid(
            "client_ca",
            "must be a PEM file with at least one certificate",
        )
    };
    let mut roots = RootCertStore::empty();
    for authority in parse_certificates(authorities) {
        roots
            .add(authority)
            .map_err(|cause| invalid().with_source(cause))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier = if required {
        verifier
    } else {
        verifier.allow_unauthenticated()
    };
    verifier
        .build()
        .map_err(|cause| invalid().with_source(cause))
}

fn load_certified_key(certificates: &[u8], key: &[u8]) -> Result<CertifiedKey> {
    let chain = parse_certificates(certificates);
    if chain.is_empty() {
        return Err(Error::invalid(
            "certificate",
            "must be a PEM file with at least one certificate",
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| Error::invalid("key", "must be a PEM file with one private key"))?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|cause| {
        Error::invalid("key", "does not belong to the certificate").with_source(cause)
    })
}

/// Parses all certificates of a PEM file. Returns none if one of them is malformed.
fn parse_certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<std::result::Result<_, _>>()
        .unwrap_or_default()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Server {
    /// Serves TLS only.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.handshake = Some(Arc::new(tls));
        self
    }
}

#[async_trait]
impl TlsHandshake for Tls {
    async fn perform(&self, stream: TcpStream) -> io::Result<SecureStream> {
        let stream = self.acceptor.accept(stream).await?;
        let (_, session) = stream.get_ref();
        let certificate = session
            .peer_certificates()
            .and_then(|chain| chain.first())
            .map(|leaf| leaf.to_vec().into());
        Ok(SecureStream {
            stream: Box::new(stream),
            certificate,
        })
    }
}
