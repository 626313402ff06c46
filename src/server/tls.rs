//! TLS on the same port: a certificate, and connections that begin with a handshake.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::Server;
use super::connections::{BoxedByteStream, Certificate, TlsHandshake};
use crate::model::{Error, Result};

/// A certificate with its key: what a server proves its name with. Clones are the same one: what [`renew`](Self::renew) gives
/// to one, all have, also while a server runs.
#[derive(Clone)]
pub struct Tls {
    resolver: Arc<CertificateResolver>,
    acceptor: TlsAcceptor,
}

/// The certificate that is shown now.
#[derive(Debug)]
struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            self.0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }
}

impl Tls {
    /// From PEM: the certificate first, then those that vouch for it; and its private key. TLS 1.3 and 1.2 are spoken,
    /// HTTP/2 and HTTP/1.1 within.
    ///
    /// # Errors
    /// One of them is not what it should be, or they do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self> {
        let resolver = Arc::new(CertificateResolver(RwLock::new(Arc::new(
            load_certified_key(certificates, key)?,
        ))));
        let acceptor = build_acceptor(&resolver, None)?;
        Ok(Self { resolver, acceptor })
    }

    /// Verifies the certificates that callers show against these authorities, in PEM: who shows one that is not good gets no
    /// further, and if they are `required`, nor does who shows none. Whom they name is for
    /// [`Certificates`](crate::auth::Certificates) to say.
    ///
    /// # Errors
    /// There is no authority in it.
    pub fn verify_clients(self, authorities: &[u8], required: bool) -> Result<Self> {
        Ok(Self {
            acceptor: build_acceptor(&self.resolver, Some((authorities, required)))?,
            ..self
        })
    }

    /// Proves its name with another certificate from now on. Connections that are there stay as they are.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem); then the old one stays.
    pub fn renew(&self, certificates: &[u8], key: &[u8]) -> Result<()> {
        let fresh = Arc::new(load_certified_key(certificates, key)?);
        *self
            .resolver
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

fn build_acceptor(
    resolver: &Arc<CertificateResolver>,
    clients: Option<(&[u8], bool)>,
) -> Result<TlsAcceptor> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::internal)?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some((authorities, required)) => {
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
            builder.with_client_cert_verifier(
                verifier
                    .build()
                    .map_err(|cause| invalid().with_source(cause))?,
            )
        }
    };
    let mut config = builder.with_cert_resolver(resolver.clone());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
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
    /// Serves over TLS, and not without.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.handshake = Some(Arc::new(tls));
        self
    }
}

#[async_trait]
impl TlsHandshake for Tls {
    async fn perform(
        &self,
        stream: TcpStream,
    ) -> io::Result<(BoxedByteStream, Option<Certificate>)> {
        let stream = self.acceptor.accept(stream).await?;
        let (_, session) = stream.get_ref();
        let certificate = session
            .peer_certificates()
            .and_then(|chain| chain.first())
            .map(|own| own.to_vec().into());
        Ok((Box::new(stream), certificate))
    }
}
