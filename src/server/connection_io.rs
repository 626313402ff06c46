//! A connection that has been looked at, and whose peer must read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What every HTTP/2 connection begins with. Waited for whole, because hyper waits for the rest of it without a limit.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes were read to see what it speaks; they are read again from here. A write that the
/// peer leaves waiting for too long fails, so that nobody is kept by a reader who does not read.
pub(super) struct ConnectionIo<S> {
    inner: S,
    sniffed: Bytes,
    write_timeout: Duration,
    /// Set while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Whether what is to be written now has let others go first.
    has_yielded: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionIo<S> {
    /// Waits for the first bytes; says whether they are HTTP/2.
    ///
    /// # Errors
    /// The peer left before.
    pub(super) async fn detect(mut inner: S, write_timeout: Duration) -> io::Result<(Self, bool)> {
        let mut sniffed = Vec::with_capacity(HTTP2_PREFACE.len());
        while sniffed.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&sniffed) {
            let mut rest = (&mut inner).take((HTTP2_PREFACE.len() - sniffed.len()) as u64);
            if rest.read_buf(&mut sniffed).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let is_http2 = sniffed == HTTP2_PREFACE;
        Ok((
            Self {
                inner,
                sniffed: sniffed.into(),
                write_timeout,
                stalled: None,
                has_yielded: false,
            },
            is_http2,
        ))
    }
}

impl<S> ConnectionIo<S> {
    /// Waits until those who are ready to run have run: whoever has a request there is answered too, and then all answers are
    /// written one behind the other. A peer that would sleep between them, and be woken for each, stays awake.
    fn yield_before_write(&mut self, context: &Context<'_>) -> Poll<()> {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn with_write_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(self.write_timeout)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
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
        // With what has come behind it: whoever reads makes more room when a beginning comes alone. An error comes again.
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
        this.with_write_timeout(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.yield_before_write(context));
        let written = Pin::new(&mut this.inner).poll_write_vectored(context, pieces);
        this.with_write_timeout(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(context);
        this.with_write_timeout(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed = Pin::new(&mut this.inner).poll_shutdown(context);
        this.with_write_timeout(context, closed)
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
            (&*format!("{http2}more"), true),
            ("PRI * HTTP/1.1", false),
            ("POST / HTTP/1.1", false),
            ("G", false),
        ] {
            let (mut near, far) = duplex(64);
            near.write_all(bytes.as_bytes()).await.unwrap();
            drop(near);
            let (mut io, is_http2) = ConnectionIo::detect(far, TIMEOUT).await.unwrap();
            let mut read = String::new();
            io.read_to_string(&mut read).await.unwrap();
            assert_eq!((read.as_str(), is_http2), (bytes, expected));
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
        let mut said = [0; 2];
        near.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"hi");
    }

    #[tokio::test(start_paused = true)]
    async fn s64_stalled_write_times_out() {
        let (mut near, far) = duplex(8);
        near.write_all(b"POST").await.unwrap();
        let (mut io, _) = ConnectionIo::detect(far, TIMEOUT).await.unwrap();
        let start = tokio::time::Instant::now();
        let error = io.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(
            (error.kind(), start.elapsed()),
            (io::ErrorKind::TimedOut, TIMEOUT)
        );
    }
}
