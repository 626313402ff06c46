//! gRPC binding: encodes a call as a gRPC request and decodes the response.
//!
//! Frames are encoded here rather than by tonic, so that the limits of the egress apply and malformed
//! trailers of a peer are harmless.

use ::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, TE};
use ::http::{HeaderMap, Method, Request as HttpRequest, Uri};
use bytes::Bytes;
use tonic::Code;

use super::event_stream::stream_cut_error;
use super::http::HeadTimeout;
use super::rest::join_path;
use super::{Client, EventStream};
use crate::egress::{Protocol, ResponseBody, too_large};
use crate::model::{Error, ErrorKind, Request, Response, Result, Seq, StreamResponse, Version};
use crate::wire::grpc::{self, FrameDecoder, FrameError};
use crate::wire::header::LAST_EVENT_ID;

/// Whether this build supports gRPC.
pub(super) const IS_SUPPORTED: bool = true;

/// Parses `host:port` or a URL with scheme `http`, `https`, `grpc` or `grpcs`.
pub(super) fn parse_url(url: &str) -> Result<Option<Uri>> {
    let url = match url.split_once("://") {
        None => format!("http://{url}"),
        Some(("grpc", rest)) => format!("http://{rest}"),
        Some(("grpcs", rest)) => format!("https://{rest}"),
        Some(_) => url.to_owned(),
    };
    Ok(url.parse().ok())
}

pub(super) async fn call(client: &Client, request: &Request) -> Result<Response> {
    let mut messages = open(client, request, None).await?;
    let message = messages
        .next()
        .await
        .ok_or_else(|| invalid_response("no message"))??;
    // The status follows the message in the trailers.
    match messages.next().await {
        None => grpc::read_response(request.operation(), &message, client.endpoint.version),
        Some(Ok(_)) => Err(invalid_response("several messages instead of one")),
        Some(Err(error)) => Err(error),
    }
}

pub(super) async fn stream(
    client: &Client,
    request: &Request,
    after: Option<Seq>,
) -> Result<EventStream> {
    open(client, request, after).await.map(EventStream::from)
}

async fn open(client: &Client, request: &Request, after: Option<Seq>) -> Result<GrpcMessages> {
    let message = grpc::write_request(request, client.endpoint.version)?;
    let path = grpc::path(request.operation(), client.endpoint.version)
        .ok_or(ErrorKind::UnsupportedOperation)?;
    let mut body = Vec::with_capacity(message.len() + 5);
    grpc::write_frame(&mut body, &message).map_err(|_| ErrorKind::PayloadTooLarge)?;
    let mut http = HttpRequest::new(Bytes::from(body));
    *http.method_mut() = Method::POST;
    *http.uri_mut() = join_path(&client.endpoint.url, path)?;
    let headers = http.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    if let Some(Seq(after)) = after {
        headers.insert(HeaderName::from_static(LAST_EVENT_ID), after.into());
    }
    client.add_headers(headers);
    let (head, body) = client
        .send_request(http, Protocol::Http2, HeadTimeout::for_request(request))
        .await?
        .into_parts();
    let is_grpc = head
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc || head.status != 200 {
        return Err(grpc::read_http_status(head.status.as_u16()));
    }
    // A refusal may have its status in the head instead of the trailers.
    let ended = status(&head.headers).transpose()?.is_some();
    Ok(GrpcMessages {
        body,
        frames: FrameDecoder::new(client.settings.max_bytes),
        version: client.endpoint.version,
        ended,
    })
}

/// Returns the gRPC status; `None` if the headers contain none.
fn status(headers: &HeaderMap) -> Option<Result<()>> {
    let status = grpc::read_status(|name| headers.get(name).map(HeaderValue::as_bytes))?;
    Some(match status.code() {
        Code::Ok => Ok(()),
        _ => Err(grpc::from_status(&status)),
    })
}

/// Messages of one response.
pub(super) struct GrpcMessages {
    body: ResponseBody,
    frames: FrameDecoder,
    version: Version,
    /// Whether the peer has sent status OK.
    ended: bool,
}

impl GrpcMessages {
    pub(super) async fn next_event(&mut self) -> Option<Result<StreamResponse>> {
        let message = self.next().await?;
        Some(message.and_then(|message| grpc::read_event(&message, self.version)))
    }

    async fn next(&mut self) -> Option<Result<Vec<u8>>> {
        loop {
            match self.frames.next_frame() {
                Ok(Some(message)) => return Some(Ok(message.to_vec())),
                Ok(None) if self.ended => return None,
                Ok(None) => {}
                Err(FrameError::TooLarge { limit }) => return Some(Err(too_large(limit))),
                Err(FrameError::Compressed) => {
                    return Some(Err(invalid_response(
                        "a compressed message, although no compression was negotiated",
                    )));
                }
            }
            match self.body.next().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.frames.push(data);
                    } else if let Some(Err(error)) =
                        frame.trailers_ref().and_then(|it| self.end(it))
                    {
                        return Some(Err(error));
                    }
                }
                Some(Err(lost)) => return Some(Err(lost)),
                None => return Some(Err(stream_cut_error())),
            }
        }
    }

    fn end(&mut self, trailers: &HeaderMap) -> Option<Result<()>> {
        let status = status(trailers)?;
        self.ended = true;
        Some(if self.frames.is_at_boundary() {
            status
        } else {
            status.and_then(|()| Err(stream_cut_error()))
        })
    }
}

fn invalid_response(what: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message(format!("Invalid agent response: {what}"))
}
