//! gRPC framing: length-prefixed messages, status and trailers.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tonic::{Code, Status};

use crate::model::{Error, ErrorKind, Result};
use crate::server::reply::{BoxedFrames, PiecedBody, Reply, ReplyBody};
use crate::wire::grpc::write_event_header;

/// Length of a frame header: compression flag, and message length in four bytes.
const FRAME_HEADER_BYTES: usize = 5;

/// Returns the one message of a request body.
///
/// # Errors
/// Invalid request: not exactly one uncompressed message.
pub(super) fn unframe(mut bytes: Bytes) -> Result<Bytes> {
    let invalid = |text| Err(Error::new(ErrorKind::InvalidRequest).with_message(text));
    let Some([compressed, length @ ..]) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return invalid("request without a message");
    };
    if *compressed != 0 {
        return invalid("compressed messages are not supported");
    }
    let length = u32::from_be_bytes(*length);
    let message = bytes.split_off(FRAME_HEADER_BYTES);
    if usize::try_from(length) == Ok(message.len()) {
        Ok(message)
    } else {
        invalid("a request must be exactly one message of the announced length")
    }
}

/// Writes a message with its frame header.
pub(super) fn write<T>(out: &mut Vec<u8>, message: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    let written = message(out);
    // Messages are bounded far below 4 GiB.
    let length = u32::try_from(out.len() - start - FRAME_HEADER_BYTES).unwrap_or(u32::MAX);
    out[start + 1..start + FRAME_HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    written
}

/// Returns the bytes before the message of a large task: the frame header, and in a stream also those of its event.
pub(super) fn task_header(task_bytes: usize, is_event: bool) -> Bytes {
    let mut field = Vec::new();
    if is_event {
        write_event_header(&mut field, task_bytes);
    }
    let mut out = vec![0];
    // Messages are bounded far below 4 GiB.
    let length = u32::try_from(field.len() + task_bytes).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&field);
    out.into()
}

/// Returns a reply with one framed message and status OK.
pub(super) fn unary_reply(framed: Vec<u8>) -> Reply {
    pieced_reply(PiecedBody::new([framed.into()]))
}

/// Returns a reply with one framed message in pieces and status OK.
pub(super) fn pieced_reply(message: PiecedBody) -> Reply {
    let body = message.with_trailers(trailers(&Status::ok("")));
    with_content_type(Reply::new(ReplyBody::Pieces(Box::new(body))))
}

/// Returns a reply whose body ends with trailers.
pub(super) fn stream_reply(frames: BoxedFrames) -> Reply {
    with_content_type(Reply::new(ReplyBody::Stream(frames)))
}

/// Returns a reply with a status and no message.
pub(super) fn status_reply(status: &Status) -> Reply {
    let mut reply = with_content_type(Reply::new(ReplyBody::Full(Bytes::new())));
    reply.headers_mut().extend(trailers(status));
    reply
}

/// Returns the trailers of a status.
pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        let code = HeaderValue::from(i32::from(Code::Internal));
        trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), code)]);
    }
    trailers
}

/// Returns the status for a compressed request.
pub(super) fn compression_unsupported() -> Status {
    let mut status = Status::unimplemented("compressed messages are not supported");
    let identity = "identity".parse().expect("`identity` is ASCII");
    status
        .metadata_mut()
        .insert("grpc-accept-encoding", identity);
    status
}

fn with_content_type(mut reply: Reply) -> Reply {
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_body_is_exactly_one_message() {
        let mut framed = Vec::new();
        write(&mut framed, |out| out.extend_from_slice(b"hello"));
        assert_eq!(unframe(framed.clone().into()), Ok(Bytes::from("hello")));
        assert_eq!(unframe(Bytes::from_static(&[0; 5])), Ok(Bytes::new()));
        let compressed = [&[1], &framed[1..]].concat();
        for wrong in [
            &framed[..4],
            &framed[..9],
            &framed.repeat(2),
            &compressed,
            &[0, 255, 255, 255, 255],
            b"",
        ] {
            assert!(unframe(Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
    }
}
