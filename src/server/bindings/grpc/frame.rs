//! Messages as gRPC frames them, and how an answer ends.

use std::future::ready;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tonic::{Code, Status};

use crate::model::{Error, ErrorKind, Result};
use crate::server::body;
use crate::server::reply::{BoxedFrames, Reply, ReplyBody};
use crate::server::routes::Routes;

/// Whether it is compressed, and four bytes of length.
const FRAME_HEADER_BYTES: usize = 5;

/// Reads the one message of a request, within the limits of any body.
///
/// # Errors
/// It is too large, too late, or not exactly one.
pub(super) async fn read(body: Incoming, routes: &Routes) -> Result<Bytes> {
    unframe(body::read(body, &routes.settings, &routes.body_budget).await?)
}

/// The one message of a request.
///
/// # Errors
/// It is not exactly one.
pub(super) fn unframe(mut bytes: Bytes) -> Result<Bytes> {
    let invalid = |text| Err(Error::new(ErrorKind::InvalidRequest).with_message(text));
    let Some([compressed, length @ ..]) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return invalid("a request needs a message");
    };
    if *compressed != 0 {
        return invalid("a compressed message needs a grpc-encoding, and this server takes none");
    }
    let length = u32::from_be_bytes(*length);
    let message = bytes.split_off(FRAME_HEADER_BYTES);
    match usize::try_from(length) == Ok(message.len()) {
        true => Ok(message),
        false => invalid("a request has exactly one message, of the length that it says"),
    }
}

/// Writes a message in its frame.
pub(super) fn write<T>(out: &mut Vec<u8>, message: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    let written = message(out);
    // What came in was not as long, and neither is what comes of it.
    let length = u32::try_from(out.len() - start - FRAME_HEADER_BYTES).unwrap_or(u32::MAX);
    out[start + 1..start + FRAME_HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    written
}

/// An answer of one message, which is in its frame.
pub(super) fn unary_reply(framed: Vec<u8>) -> Reply {
    let whole = Full::new(Bytes::from(framed)).map_err(|never| match never {});
    stream_reply(Box::new(
        whole.with_trailers(ready(Some(Ok(trailers(&Status::ok("")))))),
    ))
}

/// An answer whose frames end with a status.
pub(super) fn stream_reply(frames: BoxedFrames) -> Reply {
    with_content_type(Reply::new(ReplyBody::Stream(frames)))
}

/// An answer that is nothing but a status.
pub(super) fn status_reply(status: &Status) -> Reply {
    let mut reply = with_content_type(Reply::new(ReplyBody::Full(Bytes::new())));
    reply.headers_mut().extend(trailers(status));
    reply
}

/// What an answer ends with.
pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        let code = HeaderValue::from(i32::from(Code::Internal));
        trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), code)]);
    }
    trailers
}

/// The answer to a message that is compressed.
pub(super) fn compression_unsupported() -> Status {
    let mut status = Status::unimplemented("this server takes no compressed messages");
    let identity = "identity".parse().expect("it is ASCII");
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
