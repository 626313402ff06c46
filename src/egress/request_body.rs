//! Body of an outgoing request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Largest frame of a body. The HTTP client copies the frames that it cannot send yet, so a whole body in one frame
/// would be copied for each connection.
const FRAME_BYTES: usize = 64 << 10;

/// Complete body that is sent in frames of at most 64 KiB.
pub(super) struct RequestBody(Bytes);

impl RequestBody {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.0.len().min(FRAME_BYTES);
        let frame = (length > 0).then(|| Ok(Frame::data(self.0.split_to(length))));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn d04_a_large_body_is_sent_in_frames() {
        let bytes = Bytes::from(vec![7; 2 * FRAME_BYTES + 1]);
        let mut body = RequestBody::new(bytes.clone());
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let mut lengths = Vec::new();
        while let Some(frame) = body.frame().await {
            lengths.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(lengths, [FRAME_BYTES, FRAME_BYTES, 1]);
        assert!(body.is_end_stream());
    }
}
