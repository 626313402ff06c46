//! Connector for hyper: TCP, TLS over TCP, or any other stream (in-process, tests).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

/// Maximum time to connect. A TLS handshake may take the same time again.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Function that opens connections.
#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Fn(Uri) -> ConnectFuture + Send + Sync>);

pub(super) type ConnectFuture =
    Pin<Box<dyn Future<Output = Result<TokioIo<BoxedStream>, BoxError>> + Send>>;
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Connector {
    /// Opens plain connections with `connect`.
    pub(crate) fn new<C, F, S, E>(connect: C) -> Self
    where
        C: Fn(Uri) -> F + Send + Sync + 'static,
        F: Future<Output = Result<S, E>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<BoxError>,
    {
        Self::from_stream(move |uri| {
            let connecting = connect(uri);
            async move {
                connecting
                    .await
                    .map(|stream| BoxedStream::new(stream, false))
                    .map_err(Into::into)
            }
        })
    }

    /// Opens connections with `connect`, which reports whether HTTP/2 was negotiated.
    pub(super) fn from_stream<C, F>(connect: C) -> Self
    where
        C: Fn(Uri) -> F + Send + Sync + 'static,
        F: Future<Output = Result<BoxedStream, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |uri| {
            let connecting = connect(uri);
            Box::pin(async move { connecting.await.map(TokioIo::new) })
        }))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<BoxedStream>;
    type Error = BoxError;
    type Future = ConnectFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> ConnectFuture {
        (self.0)(uri)
    }
}

/// Connection of any type.
pub(crate) struct BoxedStream {
    stream: Box<dyn AsyncStream>,
    /// Whether the TLS handshake negotiated HTTP/2 (ALPN).
    is_http2: bool,
}

impl BoxedStream {
    pub(super) fn new(stream: impl AsyncStream + 'static, is_http2: bool) -> Self {
        Self {
            stream: Box::new(stream),
            is_http2,
        }
    }
}

/// Bidirectional byte stream.
pub(crate) trait AsyncStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> AsyncStream for S {}

impl Connection for BoxedStream {
    fn connected(&self) -> Connected {
        if self.is_http2 {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl AsyncRead for BoxedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for BoxedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
