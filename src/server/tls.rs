//! TLS on the same port: a certificate, and connections that begin with a handshake.

use std::fmt;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::Server;
use super::connections::{Connection, Handshake};
use crate::model::{Error, Result};

/// A certificate with its key: what a server proves its name with.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// From PEM: the certificate first, then those that vouch for it; and its private key. TLS 1.3 and 1.2 are spoken,
    /// HTTP/2 and HTTP/1.1 within.
    ///
    /// # Errors
    /// One of them is not what it should be, or they do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self> {
        let wrong = |field: &'static str, why: &'static str| move || Error::invalid(field, why);
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates)
            .collect::<std::result::Result<_, _>>()
            .unwrap_or_default();
        if chain.is_empty() {
            return Err(wrong("certificate", "must be a PEM file with at least one certificate")());
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| wrong("key", "must be a PEM file with one private key")())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::internal)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|cause| wrong("key", "does not belong to the certificate")().with_source(cause))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
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
impl Handshake for Tls {
    async fn shake(&self, stream: TcpStream) -> io::Result<Connection> {
        Ok(Box::new(self.0.accept(stream).await?))
    }
}
