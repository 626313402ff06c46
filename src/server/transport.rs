//! Transport below HTTP: byte streams and the TLS handshake.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Bidirectional byte stream that can carry HTTP.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// TLS handshake of the server. A trait, so that the other modules do not depend on the feature
/// `tls`.
#[async_trait]
pub(super) trait TlsHandshake: Send + Sync {
    /// Performs the handshake on an accepted connection.
    async fn perform(&self, stream: TcpStream) -> io::Result<SecureStream>;
}

/// Connection after its TLS handshake.
pub(super) struct SecureStream {
    pub(super) stream: Box<dyn ByteStream>,
    /// Verified client certificate, if the client sent one.
    pub(super) certificate: Option<Certificate>,
}

/// Client certificate that the handshake has verified, in DER.
pub(super) type Certificate = Arc<[u8]>;
