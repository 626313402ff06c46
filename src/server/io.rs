//! A connection that has been looked at, and whose peer must read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What every HTTP/2 connection begins with. Waited for whole, because hyper waits for the rest of it without a limit.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes were read to see what it speaks; they are read again from here. A write that the
/// peer leaves waiting for too long fails, so that nobody is kept by a reader who does not read.
pub(super) struct Io<S> {
    inner: S,
    first: Bytes,
    write_timeout: Duration,
    /// Set while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Whether what is to be written now has let others go first.
    has_waited: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    /// Waits for the first bytes; says whether they are HTTP/2.
    ///
    /// # Errors
    /// The peer left before.
    pub(super) async fn open(mut inner: S, write_timeout: Duration) -> io::Result<(Self, bool)> {
        let mut first = Vec::with_capacity(HTTP2.len());
        while first.len() < HTTP2.len() && HTTP2.starts_with(&first) {
            let mut rest = (&mut inner).take((HTTP2.len() - first.len()) as u64);
            if rest.read_buf(&mut first).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let is_http2 = first == HTTP2;
        Ok((
            Self {
                inner,
                first: first.into(),
                write_timeout,
                stalled: None,
                has_waited: false,
            },
            is_http2,
        ))
    }
}

impl<S> Io<S> {
    /// Waits until those who are ready to run have run: whoever has a request there is answered too, and then all answers are
    /// written one behind the other. A peer that would sleep between them, and be woken for each, stays awake.
    fn lets_others_go_first(&mut self, context: &Context<'_>) -> Poll<()> {
        self.has_waited = !self.has_waited;
        if self.has_waited {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn within<T>(
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

impl<S: AsyncRead + Unpin> AsyncRead for Io<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        let some = this.first.len().min(buffer.remaining());
        buffer.put_slice(&this.first[..some]);
        this.first.advance(some);
        // With what has come behind it: whoever reads makes more room when a beginning comes alone. An error comes again.
        if this.first.is_empty() && buffer.remaining() > 0 {
            let _ = Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Io<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.lets_others_go_first(context));
        let written = Pin::new(&mut this.inner).poll_write(context, bytes);
        this.within(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.lets_others_go_first(context));
        let written = Pin::new(&mut this.inner).poll_write_vectored(context, pieces);
        this.within(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(context);
        this.within(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed = Pin::new(&mut this.inner).poll_shutdown(context);
        this.within(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn what_was_looked_at_is_read_again() {
        let http2 = std::str::from_utf8(HTTP2).unwrap();
        for (bytes, expected) in [
            (&*format!("{http2}more"), true),
            ("PRI * HTTP/1.1", false),
            ("POST / HTTP/1.1", false),
            ("G", false),
        ] {
            let (mut near, far) = duplex(64);
            near.write_all(bytes.as_bytes()).await.unwrap();
            drop(near);
            let (mut io, is_http2) = Io::open(far, PATIENCE).await.unwrap();
            let mut read = String::new();
            io.read_to_string(&mut read).await.unwrap();
            assert_eq!((read.as_str(), is_http2), (bytes, expected));
        }
        for half in ["", "P", "PRI * HTTP/2.0"] {
            let (mut near, far) = duplex(64);
            near.write_all(half.as_bytes()).await.unwrap();
            drop(near);
            assert!(Io::open(far, PATIENCE).await.is_err(), "{half}");
        }
    }

    #[tokio::test]
    async fn whoever_is_ready_runs_before_anything_is_written() {
        let (mut near, far) = duplex(64);
        near.write_all(b"POST").await.unwrap();
        let (mut io, _) = Io::open(far, PATIENCE).await.unwrap();
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
    async fn s64_a_peer_that_does_not_read_is_let_go() {
        let (mut near, far) = duplex(8);
        near.write_all(b"POST").await.unwrap();
        let (mut io, _) = Io::open(far, PATIENCE).await.unwrap();
        let start = tokio::time::Instant::now();
        let error = io.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(
            (error.kind(), start.elapsed()),
            (io::ErrorKind::TimedOut, PATIENCE)
        );
    }
}
