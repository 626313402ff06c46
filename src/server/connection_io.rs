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
    /// Whether the current write has already yielded to other tasks. A write that the peer stalls yields once: hyper polls
    /// it several times for each wake-up, and would otherwise wake its own task without end (D3).
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
        if self.has_yielded {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ends the current write if it is complete.
    fn end_write(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.has_yielded = written.is_pending();
        written
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
        let written = Pin::new(&mut this.inner).poll_write(context, bytes);
        this.end_write(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.yield_before_write(context));
        let written = Pin::new(&mut this.inner).poll_write_vectored(context, pieces);
        this.end_write(written)
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

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

    /// Waker that counts its wake-ups.
    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn d03_a_stalled_write_does_not_wake_its_own_task() {
        let (mut near, far) = duplex(8);
        near.write_all(b"POST").await.unwrap();
        let (mut io, _) = ConnectionIo::detect(far, TIMEOUT).await.unwrap();
        let wakes = Arc::new(WakeCount::default());
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let mut write = |io: &mut ConnectionIo<_>| Pin::new(io).poll_write(&mut context, &[0; 8]);
        assert!(write(&mut io).is_pending(), "yields");
        assert!(matches!(write(&mut io), Poll::Ready(Ok(8))));
        assert!(write(&mut io).is_pending(), "the next write yields again");
        let yields = wakes.0.load(Ordering::SeqCst);
        assert_eq!(yields, 2);
        for _ in 0..4 {
            // The peer does not read.
            assert!(write(&mut io).is_pending());
        }
        assert_eq!(wakes.0.load(Ordering::SeqCst), yields);
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
