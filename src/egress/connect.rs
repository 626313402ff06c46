//! How connections are made: over TCP, or in whatever way there is.

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

/// How long a connection may take to be made; a TLS handshake may take as long again.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Fn(Uri) -> Connecting + Send + Sync>);

pub(super) type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<Pipe>, Failed>> + Send>>;
pub(super) type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Connector {
    /// Makes them as `connect` does.
    pub(crate) fn new<C, F, S, E>(connect: C) -> Self
    where
        C: Fn(Uri) -> F + Send + Sync + 'static,
        F: Future<Output = Result<S, E>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<Failed>,
    {
        Self::of(move |uri| {
            let connecting = connect(uri);
            async move {
                connecting
                    .await
                    .map(|stream| Pipe::new(stream, false))
                    .map_err(Into::into)
            }
        })
    }

    /// Makes them as `connect` does, which says what was negotiated.
    pub(super) fn of<C, F>(connect: C) -> Self
    where
        C: Fn(Uri) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Pipe, Failed>> + Send + 'static,
    {
        Self(Arc::new(move |uri| {
            let connecting = connect(uri);
            Box::pin(async move { connecting.await.map(TokioIo::new) })
        }))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Pipe>;
    type Error = Failed;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        (self.0)(uri)
    }
}

/// A connection, whatever it is made of.
pub(crate) struct Pipe {
    stream: Box<dyn Both>,
    /// HTTP/2 was agreed on in the handshake.
    is_http2: bool,
}

impl Pipe {
    pub(super) fn new(stream: impl Both + 'static, is_http2: bool) -> Self {
        Self {
            stream: Box::new(stream),
            is_http2,
        }
    }
}

pub(crate) trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Both for S {}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        if self.is_http2 {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Pipe {
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
