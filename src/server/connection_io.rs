//! Byte stream of a connection: protocol detection, write timeout, and yielding before writes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use crate::rt::WriteTimeout;

/// HTTP/2 connection preface. Detection reads all of it, because hyper has no timeout for the rest.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// Connection stream that replays the bytes read for protocol detection.
pub(super) struct ConnectionIo<S> {
    inner: WriteTimeout<S>,
    /// Bytes read during detection and not replayed yet.
    sniffed: Bytes,
    /// Whether the current write has already yielded to other tasks.
    has_yielded: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionIo<S> {
    /// Reads the first bytes and detects the protocol.
    ///
    /// # Errors
    /// The peer closed the connection before that, or reading failed.
    pub(super) async fn detect(
        mut inner: S,
        write_timeout: Duration,
    ) -> io::Result<(Self, HttpVersion)> {
        let mut sniffed = Vec::with_capacity(HTTP2_PREFACE.len());
        while sniffed.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&sniffed) {
            let mut rest = (&mut inner).take((HTTP2_PREFACE.len() - sniffed.len()) as u64);
            if rest.read_buf(&mut sniffed).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let version = if sniffed == HTTP2_PREFACE {
            HttpVersion::Http2
        } else {
            HttpVersion::Http1
        };
        let io = Self {
            inner: WriteTimeout::new(inner, write_timeout),
            sniffed: sniffed.into(),
            has_yielded: false,
        };
        Ok((io, version))
    }
}

impl<S> ConnectionIo<S> {
    /// Yields once to the other ready tasks before a write.
    ///
    /// Replies that become ready together are then written back to back, and the peer wakes up once
    /// for all of them.
    fn yield_before_write(&mut self, context: &Context<'_>) -> Poll<()> {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.sniffed.is_empty() {
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        let length = this.sniffed.len().min(buffer.remaining());
        buffer.put_slice(&this.sniffed[..length]);
        this.sniffed.advance(length);
        // Also reads what follows: hyper grows its buffer after a short read. An error is returned
        // by the next read.
        if this.sniffed.is_empty() && buffer.remaining() > 0 {
            let _ = Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ConnectionIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.yield_before_write(context));
        Pin::new(&mut this.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.yield_before_write(context));
        Pin::new(&mut this.inner).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn sniffed_bytes_are_read_again() {
        let http2 = std::str::from_utf8(HTTP2_PREFACE).unwrap();
        for (bytes, expected) in [
            (&*format!("{http2}more"), HttpVersion::Http2),
            ("PRI * HTTP/1.1", HttpVersion::Http1),
            ("POST / HTTP/1.1", HttpVersion::Http1),
            ("G", HttpVersion::Http1),
        ] {
            let (mut near, far) = duplex(64);
            near.write_all(bytes.as_bytes()).await.unwrap();
            drop(near);
            let (mut io, version) = ConnectionIo::detect(far, TIMEOUT).await.unwrap();
            let mut read = String::new();
            io.read_to_string(&mut read).await.unwrap();
            assert_eq!(read, bytes);
            assert_eq!(version, expected);
        }
        for half in ["", "P", "PRI * HTTP/2.0"] {
            let (mut near, far) = duplex(64);
            near.write_all(half.as_bytes()).await.unwrap();
            drop(near);
            assert!(ConnectionIo::detect(far, TIMEOUT).await.is_err(), "{half}");
        }
    }

    #[tokio::test]
    async fn ready_tasks_run_before_a_write() {
        let (mut near, far) = duplex(64);
        near.write_all(b"POST").await.unwrap();
        let (mut io, _) = ConnectionIo::detect(far, TIMEOUT).await.unwrap();
        let order = std::sync::Mutex::new(Vec::new());
        let write = async {
            io.write_all(b"hi").await.unwrap();
            order.lock().unwrap().push("written");
        };
        tokio::join!(biased; write, async { order.lock().unwrap().push("ran") });
        assert_eq!(order.into_inner().unwrap(), ["ran", "written"]);
        let mut received = [0; 2];
        near.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"hi");
    }

    #[tokio::test(start_paused = true)]
    async fn s64_stalled_write_times_out() {
        let (mut near, far) = duplex(8);
        near.write_all(b"POST").await.unwrap();
        let (mut io, _) = ConnectionIo::detect(far, TIMEOUT).await.unwrap();
        let start = tokio::time::Instant::now();
        let error = io.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), TIMEOUT);
    }
}
